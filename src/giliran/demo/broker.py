"""The Celery application of the demo, and its messages."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast
from uuid import uuid4

from celery import Celery
from redis import Redis

from giliran.adapters.celery import CeleryQueue

QUEUE = "refunds"
TASK = "refund"
VISIBILITY = 5


@dataclass(frozen=True, slots=True)
class Refund:
    """What one job is told."""

    order_id: int
    refund_id: str
    amount: int


@dataclass(frozen=True, slots=True)
class Sent:
    """The delivery tags of the messages that were sent.

    Attributes:
        firsts: one message for each refund.
        repeats: copies of such messages, and other messages for the same refund.
    """

    firsts: frozenset[str]
    repeats: frozenset[str]


def make_app(url: str) -> Any:
    """Make the application: late ack, and redelivery as quick as the broker can."""
    app: Any = Celery("giliran-demo", broker=url, set_as_current=False)
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        task_default_queue=QUEUE,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "visibility_timeout": VISIBILITY,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
        },
    )
    return app


def plan(jobs: int, orders: int, seed: int) -> list[Refund]:
    """Draw the refunds: two of five fall on a few hot orders."""
    luck = random.Random(seed)
    hot = max(1, orders // 10)
    return [
        Refund(
            luck.randrange(hot) if luck.random() < 0.4 else luck.randrange(orders),
            f"r-{number}",
            luck.randrange(1, 100),
        )
        for number in range(jobs)
    ]


def publish(url: str, refunds: Sequence[Refund], seed: int) -> Sent:
    """Send a message for every refund, a second one for some, and copies of others.

    A copy is what a broker delivers a second time: the same message, byte for byte, but for the
    broker's own delivery tag.
    """
    luck = random.Random(seed)
    seconds = luck.choices(refunds, k=max(25, len(refunds) // 8))
    app = make_app(url)
    CeleryQueue(app)
    for refund in (*refunds, *seconds):
        app.send_task(TASK, kwargs=asdict(refund))
    app.close()
    with Redis.from_url(url) as broker:
        raw = cast("list[bytes]", broker.lrange(QUEUE, 0, -1))[::-1]
        messages: list[dict[str, Any]] = [json.loads(text) for text in raw]
        if len(messages) != len(refunds) + len(seconds):
            raise AssertionError(f"of {len(refunds) + len(seconds)} messages {len(raw)} are there")
        copied = luck.choices(messages[: len(refunds)], k=max(50, len(refunds) // 5))
        copies = [_copy(message) for message in copied]
        broker.delete(QUEUE)
        broker.lpush(QUEUE, *_mixed(messages, copied, copies, luck))
    repeats = messages[len(refunds) :] + copies
    return Sent(frozenset(map(_tag, messages[: len(refunds)])), frozenset(map(_tag, repeats)))


def unsettled(broker: Redis) -> bool:
    """Tell whether the broker holds any message, delivered or not."""
    return bool(broker.exists(QUEUE, "unacked"))


def _tag(message: dict[str, Any]) -> str:
    return str(message["properties"]["delivery_tag"])


def _copy(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "properties": {**message["properties"], "delivery_tag": str(uuid4())}}


def _mixed(
    messages: Sequence[dict[str, Any]],
    copied: Sequence[dict[str, Any]],
    copies: Sequence[dict[str, Any]],
    luck: random.Random,
) -> list[str]:
    """Shuffle; half of the copies come right after their original, so that both may run at once."""
    places = {_tag(message): luck.random() for message in messages}
    for original, copy in zip(copied, copies, strict=True):
        near = luck.random() < 0.5
        places[_tag(copy)] = places[_tag(original)] + 1e-9 if near else luck.random()
    ordered = sorted((*messages, *copies), key=lambda message: places[_tag(message)])
    return [json.dumps(message) for message in ordered]
