"""A message that is put back is the same message, in the same queue, for later."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from typing import Any

import pytest
from celery import Celery, chain, chord
from celery.app.task import Context
from celery.canvas import StampingVisitor
from kombu.common import Broadcast
from kombu.connection import Connection
from tests.adapters.celery import features, tasks
from tests.adapters.celery.rig import GIVE_UP, Rig, outcome
from tests.support.wait import wait_for

from giliran.adapters.celery.headers import CARRIED
from giliran.adapters.celery.job import CeleryJob
from giliran.adapters.celery.publish import Publisher
from giliran.jobs import Carried

MAY_DIFFER = {
    "headers": {"eta", *CARRIED.values()},
    # An expired copy must end as REVOKED, so the broker must not drop it. What follows `expiration`
    # stands in the headers; Celery writes it here as well, where nobody reads it.
    "properties": {"delivery_tag", "expiration", "argsrepr", "kwargsrepr", "origin"},
}


def raw(rig: Rig, queue: str) -> dict[str, Any]:
    """Take the one message of a queue nobody serves, whatever its priority."""

    def take() -> Any:
        for key in sorted(rig.queue.keys(f"{queue}*")):
            return rig.queue.lpop(key)
        return None

    message: dict[str, Any] = json.loads(wait_for(take, GIVE_UP, f"nothing in {queue}"))
    return message


def body(message: dict[str, Any]) -> Any:
    """Read the body of a raw message."""
    data = base64.b64decode(message["body"])
    if message["headers"].get("compression"):
        data = zlib.decompress(data)
    json_like = message["content-type"] == "application/json"
    return json.loads(data) if json_like else pickle.loads(data)


def differing(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return what differs between two dictionaries."""
    return {
        key: (one.get(key, "absent"), other.get(key, "absent"))
        for key in one.keys() | other.keys()
        if one.get(key, "absent") != other.get(key, "absent")
    }


def put_back(rig: Rig, order: str, limbo: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Let the worker put a message back where it says it comes from, once; return both."""
    before = raw(rig, limbo)
    rig.hold(order, 30)
    tag = before["properties"]["delivery_tag"]
    rig.deliver(json.loads(json.dumps(before)))
    after = raw(rig, limbo)
    assert before["properties"].pop("delivery_tag") == tag
    return before, after


def check_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Check that a message was put back as it was."""
    for part, may_differ in MAY_DIFFER.items():
        assert not differing(before[part], after[part]).keys() - may_differ, part
    assert after["headers"]["giliran_contentions"] == 1
    assert after["headers"]["eta"] > (before["headers"]["eta"] or "")
    assert body(before) == body(after)
    assert not differing(before, after).keys() - {"body", "headers", "properties"}


def everything(order: str) -> dict[str, Any]:
    """Return every option that a publisher can set."""
    return {
        "task_id": f"id-{order}", "priority": 6, "expires": 600, "time_limit": 90,
        "soft_time_limit": 80, "shadow": "somebody else", "headers": {"tenant": "blue"},
        "link": [tasks.note.si(order, "linked")], "link_error": [tasks.note.si(order, "failed")],
        "group_id": "a group", "group_index": 7, "root_id": "a root", "parent_id": "a parent",
        "reply_to": "somewhere", "origin": "elsewhere", "replaced_task_nesting": 3,
        "ignore_result": True, "argsrepr": "(secret)", "kwargsrepr": "{secret}",
        "delivery_mode": 1, "message_id": "a message", "app_id": "an application",
        "type": "a type", "chain": [tasks.note.si(order, "next")], "retries": 2,
        "chord": tasks.collect.s(order),
    }  # fmt: skip


@pytest.mark.parametrize(
    "encoding",
    [{}, {"serializer": "picklish"}, {"serializer": "picklish", "compression": "gzip"}],
    ids=lambda encoding: "-".join(encoding.values()) or "json",
)
def test_a_task_put_back_differs_in_nothing_but_when_and_how_often(
    rig: Rig, order: str, task: Any, encoding: dict[str, str]
) -> None:
    limbo = f"limbo-{order}"
    task.apply_async((order,), {"later": ""}, queue=limbo, **everything(order), **encoding)
    before, after = put_back(rig, order, limbo)
    check_same(before, after)
    assert before["headers"]["expires"] == after["headers"]["expires"]


def test_a_plain_task_put_back_is_not_its_own_parent(rig: Rig, order: str) -> None:
    limbo = f"limbo-{order}"
    tasks.early.apply_async((order,), queue=limbo)
    before, after = put_back(rig, order, limbo)
    check_same(before, after)
    assert after["headers"]["parent_id"] is None


def test_a_countdown_is_over_when_a_task_is_put_back(rig: Rig, order: str) -> None:
    limbo = f"limbo-{order}"
    tasks.early.apply_async((order,), queue=limbo, countdown=0.2)
    check_same(*put_back(rig, order, limbo))


def test_a_stamped_member_of_a_chord_in_a_chain_is_put_back_as_it_was(rig: Rig, order: str) -> None:
    class Stamps(StampingVisitor):
        def on_signature(self, sig: Any, **headers: Any) -> dict[str, Any]:
            return {"tenant": "blue", "stamped_headers": ["tenant"]}

    limbo = f"limbo-{order}"
    member = tasks.early.si(order).set(queue=limbo)
    canvas = chain(chord([member], tasks.collect.s(order)), tasks.note.si(order, "next"))
    canvas.stamp(Stamps())
    canvas.delay()
    before, after = put_back(rig, order, limbo)
    check_same(before, after)
    assert after["headers"]["stamps"]["tenant"] in ("blue", ["blue"])
    assert body(after)[2]["chord"]


def test_a_task_is_put_back_past_routes_that_say_otherwise(rig: Rig, order: str) -> None:
    """The worker's routes send this task to an exchange and a key of their own."""
    limbo = f"limbo-{order}"
    features.routed.apply_async(
        (order,), queue=limbo, exchange="", routing_key=limbo, exchange_type="direct"
    )
    check_same(*put_back(rig, order, limbo))


def test_what_an_exchange_gave_to_several_queues_goes_back_to_its_own(rig: Rig, order: str) -> None:
    with tasks.app.connection_for_write() as connection:
        tasks.app.amqp.queues["audit"](connection).declare()
    rig.hold(order, 30)
    result = tasks.early.apply_async((order,), exchange="shop", routing_key="shop.sold")
    wait_for(lambda: rig.told("job.requeued", order) > 1, GIVE_UP)
    rig.release(order)
    assert outcome(result) == {"order": order, "run": 1}
    audit: Any = rig.queue.lrange("audit", 0, -1)
    assert sum(order in str(body(json.loads(text))) for text in audit) == 1


def test_a_task_put_back_gets_its_arguments_as_they_were(rig: Rig, order: str) -> None:
    """Its publisher chose a serialiser that keeps a tuple a tuple."""
    rig.hold(order, 0.4)
    result = features.weighs.apply_async((order, (1, 2)), serializer="picklish")
    assert outcome(result) == {"weight": 6, "type": "tuple"}
    assert rig.lines(order, "begin")[0]["contentions"] > 0


def test_large_arguments_are_put_back_whole(rig: Rig, order: str) -> None:
    rig.hold(order, 0.4)
    assert outcome(features.weighs.delay(order, "x" * 1_000_000))["weight"] == 1_000_000
    assert rig.lines(order, "begin")[0]["contentions"] > 0


def test_a_message_of_protocol_1_is_put_back(
    rig: Rig, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(tasks.app.amqp, "create_task_message", tasks.app.amqp.as_task_v1)
        rig.hold(order, 0.4)
        result = tasks.early.apply_async((order,), link=tasks.note.si(order, "linked"))
    assert outcome(result) == {"order": order, "run": 1}
    (begin,) = rig.lines(order, "begin")
    assert begin["contentions"] == rig.told("job.requeued", order) > 0
    assert begin["publication"].isalnum()  # Its stamp.
    rig.wait_lines(order, "linked")


def arrived(exchange: str, key: str, *queues: Any) -> CeleryJob:
    """Make a job that came by an exchange, in an application that serves the first queue."""
    app = Celery("fan", broker="memory://", set_as_current=False)
    app.conf.task_queues = queues
    app.amqp.queues.select([queues[0].name])

    @app.task(name="tell", shared=False)
    def tell() -> None: ...

    delivery = {"exchange": exchange, "routing_key": key}
    request = Context(id="1", args=(), kwargs={}, delivery_info=delivery)
    return CeleryJob(tell, request, None, Publisher(app))


def test_a_queue_of_a_topic_gets_back_what_came_by_it_and_no_other_queue_does() -> None:
    connect: Any = Connection
    shop = tasks.kombu.Exchange("shop", type="topic")
    orders = tasks.kombu.Queue("orders", shop, routing_key="order.*")
    audit = tasks.kombu.Queue("audit", shop, routing_key="#")
    job = arrived("shop", "order.sold", orders, audit)
    assert job.route == "orders"
    with connect("memory://") as connection:
        mine, other = (queue(connection) for queue in (orders, audit))
        for queue in (mine, other):
            queue.declare()
        job.put_back(1, Carried())
        assert mine.get(no_ack=True).headers["id"] == "1"
        assert other.get() is None


def test_a_broadcast_is_not_put_back_where_all_its_workers_would_get_it_again() -> None:
    """Redis and its like have no queue of one worker for it."""
    broadcast: Any = Broadcast
    job = arrived("all", "", broadcast("all", queue="mine"))
    assert job.route == "mine"
    with pytest.raises(NotImplementedError, match="a broadcast cannot be put back"):
        job.put_back(1, Carried())
