"""How a task is published again: once that returned, the broker has it.

On RabbitMQ an ordinary publish returns before the broker has read it. If the connection breaks
then, the delivery is acked and its copy was never there. So there the copy goes out on connections
of our own, which wait for the broker's word.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from typing import Any

from kombu.messaging import Producer

CONFIRM_TIMEOUT = 10.0  # How long RabbitMQ may take to say that it has a message, in seconds.
ACQUIRE_TIMEOUT = 30.0
SQS_DELAY_MAX = 900


class Confirmed(Producer):
    """Publishes on a channel with publisher confirms."""

    def publish(self, body: Any, *args: Any, **options: Any) -> Any:
        """Return when RabbitMQ has the message in a queue.

        Raises:
            Exception: if it refused the message, cannot route it, or said nothing in time.
        """
        options["confirm_timeout"] = CONFIRM_TIMEOUT
        options["mandatory"] = True  # Else it confirms what it could not route, and drops it.
        return super().publish(body, *args, **options)  # type: ignore[no-untyped-call]


class Publisher:
    """Lends producers to threads, greenlets and forked workers.

    Args:
        app: the Celery application; its own connections and settings stay as they are.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        # By process: the connections of a parent are never touched, not even to close them.
        self._pools: dict[int, Any] = {}

    @contextlib.contextmanager
    def producer(self) -> Generator[Any]:
        """Lend a producer whose `publish` returns when the broker has the message, or raises.

        A message that raised may be with the broker all the same; its copy has its publication id.
        """
        with self._app.connection_for_write() as unconnected:
            confirms = unconnected.transport.driver_name == "py-amqp"
        if not confirms:
            with self._app.producer_or_acquire() as producer:
                yield producer
            return
        connection = self._pool().acquire(block=True, timeout=ACQUIRE_TIMEOUT)
        try:
            yield Confirmed(connection, auto_declare=False)  # type: ignore[no-untyped-call]
        except BaseException:
            connection.collect()  # A late answer on it would pass for the next message's.
            raise
        finally:
            connection.release()

    def _pool(self) -> Any:
        pool = self._pools.get(os.getpid())
        if pool is None:
            connection = self._app.connection_for_write(transport_options={"confirm_publish": True})
            made = connection.Pool(self._app.conf.broker_pool_limit)
            pool = self._pools.setdefault(os.getpid(), made)
        return pool


def held_back(producer: Any, queue: str, delay: float) -> dict[str, Any]:
    """Let SQS wait for whole seconds; the worker waits for what is left.

    Args:
        producer: what publishes the message.
        queue: the queue's name; a FIFO queue takes no delay.
        delay: seconds.
    """
    if producer.connection.transport.driver_type != "sqs" or queue.endswith(".fifo"):
        return {}
    return {"DelaySeconds": min(int(delay), SQS_DELAY_MAX)}
