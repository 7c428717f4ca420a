"""Bound and class-based tasks, plain calls and eager ones, and what a task costs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery, chain, chord
from tests.adapters.celery import tasks
from tests.adapters.celery.rig import Rig, outcome
from tests.support.monitored import commands_until

from giliran import INJECTED, Giliran, Lease
from giliran.adapters.celery import CeleryQueue
from giliran.errors import GiliranError


def test_a_bound_task_is_no_part_of_its_fingerprint(rig: Rig, order: str) -> None:
    first, second = (outcome(tasks.bound.delay(order)) for _ in range(2))
    assert first == second
    assert len(rig.lines(order, "begin")) == 1


def test_a_task_written_as_a_class_is_put_back(rig: Rig, order: str) -> None:
    rig.hold(order, 0.5)
    assert outcome(tasks.class_based.delay(order)) == {"order": order, "run": 1}
    assert rig.lines(order, "begin")[0]["contentions"] > 0


def test_a_guarded_function_called_by_another_task_is_a_plain_call(rig: Rig, order: str) -> None:
    """The calling task must not be put back: all of it would run again."""
    rig.hold(order, 30)
    result = tasks.outer.delay(f"{order}", "call early")
    assert outcome(result) == {"order": order, "run": 1}
    begin, inside, _ = rig.lines(order)
    assert inside["what"] == "contended inside"
    assert begin["contentions"] == 0


def test_a_guarded_task_costs_two_calls_to_the_store(rig: Rig, order: str) -> None:
    for number in range(6):  # Let every child load the scripts.
        outcome(tasks.early.delay(f"{order}-{number}"))
    store: Any = rig.store
    with store.monitor() as monitor:
        for number in range(10):
            outcome(tasks.early.delay(f"{order}-{number}"))
        store.echo("over")
        seen = commands_until(monitor, "ECHO over")
    # Sweeps of this and other workers are not among them: they name lines, not orders.
    assert [command.split()[0] for command in seen if order in command] == ["EVALSHA"] * 20


def test_an_argument_that_is_missing_fails_at_publish() -> None:
    with pytest.raises(TypeError):
        tasks.refund.delay(1)


def test_the_lease_is_hidden_from_celery() -> None:
    assert "lease" not in inspect.signature(tasks.refund.run).parameters
    with pytest.raises(TypeError):
        tasks.refund.delay("order", "refund", 5, lease=None)


@pytest.fixture
def eager(redis_url: str) -> Iterator[Any]:
    app = Celery("eager", broker="memory://", backend="cache+memory://", set_as_current=False)
    turns = Giliran(redis_url, queues=[CeleryQueue(app)])

    @app.task(name="eager", shared=False, bind=True, max_retries=2)
    @turns.exclusive("lock:{order}", ttl=1)
    def work(task: Any, order: str, fails: int = 0, *, lease: Lease = INJECTED) -> int:
        if task.request.retries < fails:
            raise task.retry(countdown=0)
        return lease.fence

    @app.task(name="total", shared=False)
    def total(fences: list[int]) -> int:
        return len(set(fences))

    yield work
    turns.close()


def test_apply_runs_guarded_and_fails_when_contended(eager: Any, client: redis.Redis) -> None:
    assert eager.apply(("free",)).get() > 0
    client.set("lock:held", "another program", px=30_000)
    with pytest.raises(GiliranError, match="held by another program"):
        eager.apply(("held",)).get()


def test_always_eager_runs_guarded_and_fails_when_contended(
    eager: Any, client: redis.Redis
) -> None:
    eager.app.conf.task_always_eager = True
    assert eager.delay("free").get() > 0
    client.set("lock:held", "another program", px=30_000)
    assert "held by another program" in str(eager.delay("held").result)


def test_eager_canvases_of_one_resource_run_one_after_the_other(eager: Any) -> None:
    eager.app.conf.task_always_eager = True
    total = eager.app.tasks["total"].s()
    assert chord([eager.si("one"), eager.si("one")])(total).get() == 2
    last: Any = chain(eager.si("one"), eager.si("one")).delay()
    assert last.get() > 0


def test_an_eager_chord_with_a_contended_member_fails(eager: Any, client: redis.Redis) -> None:
    eager.app.conf.task_always_eager = True
    client.set("lock:held", "another program", px=30_000)
    with pytest.raises(GiliranError, match="held by another program"):
        chord([eager.si("free"), eager.si("held")])(eager.app.tasks["total"].s())


def test_an_eager_retry_runs_at_once_and_meets_no_lock_of_its_own(eager: Any) -> None:
    assert eager.apply(("free", 2)).get() > 0
    assert eager.apply(("free", 3)).failed()


def test_an_eager_result_is_stored_where_celery_is_told_to(eager: Any) -> None:
    eager.app.conf.update(task_always_eager=True, task_store_eager_result=True)
    eager.store_eager_result = True
    result = eager.delay("free")
    assert eager.AsyncResult(result.id).result == result.get()
