"""A broker or a lock store that is away loses no task and spends no retry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.adapters.celery import tasks
from tests.adapters.celery.rig import GIVE_UP, Rig, Worker, failure, outcome
from tests.support.wait import wait_for

from giliran.testing._proxy import FaultProxy, Rule

QUEUE = "outage"
PUBLISH = b"LPUSH\r\n$6\r\noutage\r\n"


@dataclass
class Far:
    """A worker that reaches both servers through proxies."""

    rig: Rig
    worker: Worker
    broker: FaultProxy
    store: FaultProxy

    def refuse_publishing(self) -> Rule:
        """Let the broker deliver, but take nothing."""
        return self.broker.drop_request(PUBLISH, times=100_000)


@pytest.fixture(scope="module")
def far(servers: Rig) -> Iterator[Far]:
    with (
        FaultProxy(servers.ports[0]) as broker,
        FaultProxy(servers.ports[1]) as store,
        servers.run(QUEUE, broker_url=broker.url, store_url=store.url, children=1) as worker,
    ):
        yield Far(servers, worker, broker, store)


def test_with_late_ack_a_task_that_cannot_be_put_back_stays_with_the_broker(
    far: Far, order: str
) -> None:
    far.rig.hold(order, 60)
    rule = far.refuse_publishing()
    result = tasks.late.apply_async((order,), queue=QUEUE)
    wait_for(lambda: "job.stranded" in far.worker.log(), GIVE_UP)
    rule.left = 0
    far.rig.release(order)
    assert outcome(result) == {"order": order, "run": 1}
    (begin,) = far.rig.lines(order, "begin")
    assert begin["retries"] == 0


def test_with_early_ack_a_task_that_cannot_be_put_back_fails_visibly(far: Far, order: str) -> None:
    far.rig.hold(order, 60)
    rule = far.refuse_publishing()
    result = tasks.early.apply_async((order,), queue=QUEUE)
    assert failure(result)
    rule.left = 0
    assert type(result.result).__name__ == "OperationalError"


def test_a_broker_whose_reply_is_lost_does_not_double_the_task(far: Far, order: str) -> None:
    """Celery publishes again what it got no reply for; both copies have one publication."""
    far.rig.hold(order, 0.5)
    rule = far.broker.drop_reply(PUBLISH)
    link = tasks.note.si(order, "linked").set(queue=QUEUE)
    tasks.early.apply_async((order,), queue=QUEUE, link=link)
    far.rig.wait_lines(order, "linked", 2)
    assert rule.hits == 1
    assert len(far.rig.lines(order, "begin")) == 1


def test_a_task_that_cannot_ask_the_lock_store_runs_when_it_is_back(far: Far, order: str) -> None:
    far.store.refuse(on=True)
    far.store.reset_all()
    result = tasks.early.apply_async((order,), queue=QUEUE)
    wait_for(lambda: f"store.unavailable job_id={result.id}" in far.worker.log(), GIVE_UP)
    far.store.refuse(on=False)
    assert outcome(result) == {"order": order, "run": 1}
    (begin,) = far.rig.lines(order, "begin")
    assert begin["outages"] > 0
    assert begin["retries"] == 0
