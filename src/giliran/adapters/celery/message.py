"""Publishing a task's own message again: as it was, to the queue it came from, for later.

`Task.retry` and `signature_from_request` make a *new* message: they ask `task_routes` again, write
it with the task's own serialiser, and name the task its own parent. A put-back must not show.
"""

from __future__ import annotations

import re
from typing import Any

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


def publish_again(
    publisher: Publisher, task: Any, request: Any, delay: float, headers: dict[str, Any]
) -> None:
    """Publish the message of a request once more, due in `delay` seconds.

    Args:
        publisher: lends what publishes it.
        task: the task.
        request: what it was called with.
        delay: seconds until it is due.
        headers: the headers that are not Celery's own.
    """
    said = vars(request)
    amqp, properties = task.app.amqp, request.properties or {}
    message = amqp.as_task_v2(
        request.id, task.name, request.args, request.kwargs,
        countdown=delay, ignore_result=None, reply_to=request.reply_to,
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
    with publisher.producer() as producer:
        to = _destination(task.app, request.delivery_info or {}, producer.connection)
        amqp.send_task_message(
            producer, task.name, message,
            serializer=registry.type_to_name.get(properties.get("content_type"), task.serializer),
            compression=said.get("compression"),
            delivery_mode=properties.get("delivery_mode"),
            **to, **held_back(producer, to["routing_key"], delay),
        )  # fmt: skip


def _destination(app: Any, delivery: dict[str, Any], connection: Any) -> dict[str, Any]:
    name = queue_of(app, delivery)
    if not name:  # Any type but "direct" lets exchange and routing key stand as they are.
        return {
            "exchange": delivery.get("exchange"),
            "routing_key": delivery.get("routing_key"),
            "exchange_type": "topic",
        }
    queue = app.amqp.queues[name]
    if queue.exchange.type == "fanout" and connection.transport.driver_type != "amqp":
        raise NotImplementedError(
            f"a broadcast cannot be put back: here {name!r} is reached by its exchange alone, and "
            "all its workers would get it again; use wait(), skip() or fail() for such a task"
        )
    return {"queue": queue, "exchange": "", "routing_key": name, "exchange_type": "direct"}
