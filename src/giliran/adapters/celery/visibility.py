"""How long a broker hides a message that it got no ack for, asked of the broker itself.

Settings do not tell: an SQS queue has a timeout of its own, and transports have defaults.
RabbitMQ tells nobody, so its limit is what the user says it is.
"""

from __future__ import annotations

import logging
import time
from typing import Any

_log = logging.getLogger("giliran")

ASK_TIMEOUT = 2.0  # How long one question may keep a job from its work, in seconds.
ASK_AGAIN = 60.0  # How long a broker that did not answer is left alone, in seconds.
_DEFAULTS = {"redis": 3600.0, "sqs": 1800.0}  # kombu's, in seconds


class Visibility:
    """Asks the broker once per process, and per queue where they differ.

    Args:
        app: the Celery application.
        consumer_timeout: RabbitMQ's limit, in seconds; None if the server has none.
    """

    def __init__(self, app: Any, consumer_timeout: float | None) -> None:
        self._app = app
        self._consumer_timeout = consumer_timeout
        self._known: dict[str, float | None] = {}
        self._ask_at = 0.0

    def of(self, request: Any) -> float | None:
        """Answer for the queue a request came from, in seconds; None: it never comes again.

        A broker that does not answer fails no job: its settings stand in until it does.
        """
        delivery = (getattr(request, "properties", None) or {}).get("delivery_info") or {}
        url = str(delivery.get("sqs_queue") or "")
        if url in self._known:
            return self._known[url]
        now = time.monotonic()
        if now < self._ask_at:
            return self._by_settings()
        self._ask_at = now + ASK_AGAIN  # Jobs beside this one need not wait for it too.
        try:
            self._known[url] = answer = self._ask(url, str(delivery.get("routing_key") or ""))
        except Exception as error:
            _log.warning("the broker's visibility timeout is not known yet: %r", error)
            return self._by_settings()
        self._ask_at = 0.0
        return answer

    def _ask(self, url: str, name: str) -> float | None:
        with self._app.connection_for_read() as plain:
            if plain.transport.driver_type == "amqp":
                return self._consumer_timeout
            connection = hasty(plain, ASK_TIMEOUT)
        with connection:
            channel = connect(connection)
            return of_sqs(channel, url, name) if url else of_channel(channel)

    def _by_settings(self) -> float | None:
        with self._app.connection_for_read() as connection:  # Connects to nothing yet.
            driver = connection.transport.driver_type
            options = connection.transport_options or {}
        if driver == "amqp":
            return self._consumer_timeout
        known = options.get("visibility_timeout") or _DEFAULTS.get(driver)
        return None if known is None else float(known)


def hasty(connection: Any, timeout: float) -> Any:
    """Make an unconnected copy of a connection that waits for a broker at most so long at a time.

    Args:
        connection: where the copy leads to as well.
        timeout: seconds for connecting and for each answer.
    """
    options = dict(connection.transport_options or {})
    driver = connection.transport.driver_type
    if driver == "redis":
        options.update(socket_timeout=timeout, socket_connect_timeout=timeout)
    elif driver == "sqs":
        limits = {
            "connect_timeout": timeout,
            "read_timeout": timeout,
            "retries": {"max_attempts": 0},
        }
        options["client-config"] = {**(options.get("client-config") or {}), **limits}
    return connection.clone(transport_options=options)


def connect(connection: Any) -> Any:
    """Connect, without patience, and return the channel."""
    connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)
    return connection.default_channel


def of_channel(channel: Any) -> float | None:
    """Read what a channel restores by, in seconds."""
    known = getattr(channel, "visibility_timeout", None)
    return None if known is None else float(known)


def of_sqs(channel: Any, url: str, name: str) -> float:
    """Ask SQS for a queue's own attribute, in seconds."""
    client = channel.sqs(queue=channel.canonical_queue_name(name))
    wanted = "VisibilityTimeout"
    answer = client.get_queue_attributes(QueueUrl=url, AttributeNames=[wanted])
    return float(answer["Attributes"][wanted])
