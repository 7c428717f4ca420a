"""Publishing a task's own message again: as it was, to the queue it came from, for later.

`Task.retry` and `signature_from_request` make a *new* message: they ask `task_routes` again, write
it with the task's own serialiser, and name the task its own parent. A put-back must not show.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from celery.app.amqp import task_message
from kombu.serialization import registry
from kombu.transport.virtual.exchange import TopicExchange

from giliran.adapters.celery.publish import Publisher, held_back

# What else a publisher may say. Not what the broker checks or counts: the user, an expiration that
# would drop the message without telling anybody, SQS' deduplication id.
_PROPERTIES = ("priority", "message_id", "timestamp", "type", "app_id", "MessageGroupId")


def keep_content_type(request: Any = None, **_: object) -> None:
    """Tell the pool what only the main process sees: how the message was serialised."""
    if request is not None:
        properties = request.request_dict["properties"]
        properties.setdefault("content_type", request.message.content_type)


def queue_of(app: Any, delivery: dict[str, Any]) -> str:
    """Name the queue that a message came from; "" if its exchange may have fed several."""
    exchange, key = delivery.get("exchange") or "", delivery.get("routing_key") or ""
    if not exchange:
        return str(key)
    served = list(app.amqp.queues.consume_from.values())
    fed = [queue for queue in served if _feeds(exchange, key, queue)]
    # Where the exchange fed several of them, each has its copy: any of them gets this one back.
    found = fed[:1] or (served if len(served) == 1 else [])
    return str(found[0].name) if found else ""


def _feeds(exchange: str, key: str, queue: Any) -> bool:
    bindings = queue.bindings or (queue,)
    return any(
        bound.exchange.name == exchange
        and (bound.exchange.type in {"fanout", "headers"} or _matches(bound.routing_key, key))
        for bound in bindings
    )


def _matches(pattern: str | None, key: str) -> bool:
    topic: Any = TopicExchange
    return re.match(topic(None).key_to_pattern(pattern or ""), key) is not None


@dataclass(frozen=True, slots=True)
class Message:
    """All that is needed to publish a task's message once more, in words that serialisers know.

    Attributes:
        task: the task's name.
        headers, properties, body: as the broker gets them; the ETA is set when it is published.
        serializer: how the body was serialised.
        compression: how the message was compressed; None if it was not.
        delivery_mode: whether the broker writes it down; None for its default.
        queue: the queue it came from; "" if that cannot be told.
        exchange, routing_key: how it came there.
    """

    task: str
    headers: dict[str, Any]
    properties: dict[str, Any]
    body: Any
    serializer: str
    compression: str | None
    delivery_mode: int | None
    queue: str
    exchange: str
    routing_key: str


def written(task: Any, request: Any, headers: dict[str, Any]) -> Message:
    """Write down the message that a request came by.

    Args:
        task: the task.
        request: what it was called with.
        headers: the headers that are not Celery's own.
    """
    said, delivery = vars(request), request.delivery_info or {}
    properties = request.properties or {}
    message = task.app.amqp.as_task_v2(
        request.id, task.name, request.args, request.kwargs,
        ignore_result=None, reply_to=request.reply_to,
        callbacks=request.callbacks, errbacks=request.errbacks,
        chain=request.chain, chord=request.chord,
        argsrepr=said.get("argsrepr"), kwargsrepr=said.get("kwargsrepr"),
    )  # fmt: skip
    mine = message.headers
    for key in mine.keys() - {"eta"}:
        mine[key] = said.get(key, mine[key])
    mine.update(headers)
    message.properties.update(
        {key: properties[key] for key in _PROPERTIES if properties.get(key) is not None},
        correlation_id=request.correlation_id or request.id,
    )
    return Message(
        task.name, mine, message.properties, message.body,
        registry.type_to_name.get(properties.get("content_type"), task.serializer),
        said.get("compression"), properties.get("delivery_mode"),
        queue_of(task.app, delivery),
        delivery.get("exchange") or "", delivery.get("routing_key") or "",
    )  # fmt: skip


def publish(app: Any, publisher: Publisher, message: Message, delay: float) -> None:
    """Publish a message, due in `delay` seconds."""
    headers, eta = message.headers, None
    if delay:
        eta = (app.now() + timedelta(seconds=delay)).isoformat()
    again = task_message({**headers, "eta": eta}, message.properties, message.body, None)
    with publisher.producer() as producer:
        to = _destination(app, message, producer.connection)
        app.amqp.send_task_message(
            producer, message.task, again,
            serializer=message.serializer, compression=message.compression,
            delivery_mode=message.delivery_mode,
            **to, **held_back(producer, to["routing_key"], delay),
        )  # fmt: skip


def _destination(app: Any, message: Message, connection: Any) -> dict[str, Any]:
    name = message.queue
    if not name:  # Any type but "direct" lets exchange and routing key stand as they are.
        return {
            "exchange": message.exchange,
            "routing_key": message.routing_key,
            "exchange_type": "topic",
        }
    queue = app.amqp.queues[name]
    if queue.exchange.type == "fanout" and connection.transport.driver_type != "amqp":
        raise NotImplementedError(
            f"a broadcast cannot be put back: here {name!r} is reached by its exchange alone, and "
            "all its workers would get it again; use wait(), skip() or fail() for such a task"
        )
    return {"queue": queue, "exchange": "", "routing_key": name, "exchange_type": "direct"}
