"""A worker that is told to stop ends what it runs, or hands it back without a retry spent.

What Celery itself loses then is said in the names of the tests, and the lock is free all the same.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from celery.apps import worker as celery_worker
from tests.adapters.celery import tasks
from tests.adapters.celery.rig import GIVE_UP, Rig, Worker, failure, outcome, state
from tests.support.sessions import session_members
from tests.support.wait import wait_for

ONCE = {"run": 1}
TWICE = {"run": 2}

hands_back = pytest.mark.skipif(
    not hasattr(celery_worker, "on_cold_shutdown"), reason="this Celery has no soft shutdown"
)


def stop(worker: Worker, number: signal.Signals) -> int:
    """Tell a worker to stop; return its exit code once it is gone with all its children."""
    worker.process.send_signal(number)
    return gone(worker)


def gone(worker: Worker) -> int:
    """Wait until a worker is gone with all its children; return its exit code."""
    code = worker.process.wait(GIVE_UP)
    left = session_members(worker.process.pid)
    wait_for(lambda: not session_members(worker.process.pid), GIVE_UP, f"children left: {left}")
    return code


def put_back(rig: Rig, worker: Worker, order: str) -> Any:
    """Send a contended task, and wait until the worker holds it for later."""
    rig.hold(order, 60)
    result = tasks.patient.apply_async((order,), queue=order)
    wait_for(lambda: held_for_later(rig, worker, order), GIVE_UP, "it was not put back")
    return result


def held_for_later(rig: Rig, worker: Worker, order: str) -> bool:
    """Tell whether an order's task was put back and came to the worker again."""
    lines = worker.log().splitlines()
    requeued = sum("job.requeued" in line and order in line for line in lines)
    received = sum("Task patient" in line and "received" in line for line in lines)
    return bool(requeued) and received > requeued and not rig.queue.llen(order)


def elsewhere(rig: Rig, order: str) -> None:
    """Let the shared worker have what came back to the broker."""
    while rig.queue.llen(order):
        rig.deliver(rig.caught(order))


def ran(rig: Rig, order: str, result: Any, times: dict[str, int]) -> list[dict[str, Any]]:
    """Make sure a task ended in this run and spent no retry; return how its runs began."""
    assert outcome(result) == {"order": order, **times}
    begins = rig.lines(order, "begin")
    assert [line["run"] for line in begins] == list(range(1, times["run"] + 1))
    assert {line["retries"] for line in begins} == {0}
    assert not rig.held(order)
    return begins


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent", "solo"])
def test_a_warm_shutdown_ends_what_runs_and_hands_back_what_was_put_back(
    rig: Rig, order: str, pool: str
) -> None:
    busy = f"{order}-busy"
    with rig.run(order, pool=pool, children=2) as worker:
        waiting = put_back(rig, worker, order)
        running = tasks.late.apply_async((busy, "gate"), queue=order)
        rig.wait_lines(busy, "begin")
        worker.process.send_signal(signal.SIGTERM)
        rig.open_gate(busy)
        assert gone(worker) == 0
    ran(rig, busy, running, ONCE)
    assert not rig.lines(order)
    rig.release(order)
    elsewhere(rig, order)
    (begin,) = ran(rig, order, waiting, ONCE)
    assert begin["contentions"] > 0


def test_a_warm_shutdown_waits_for_a_task_that_waits_for_its_resource(rig: Rig, order: str) -> None:
    rig.hold(order, 60)
    with rig.run(order, children=1) as worker:
        asked = _claims(rig)
        result = tasks.waits.apply_async((order,), queue=order)
        wait_for(lambda: _claims(rig) > asked + 1, GIVE_UP)
        worker.process.send_signal(signal.SIGTERM)
        wait_for(lambda: "Warm shutdown" in worker.log(), GIVE_UP)
        rig.release(order)
        assert gone(worker) == 0
    ran(rig, order, result, ONCE)


def _claims(rig: Rig) -> int:
    commands: Any = rig.store.info("commandstats")
    return int(commands.get("cmdstat_evalsha", {}).get("calls", 0))


@hands_back
@pytest.mark.parametrize(("number", "remapped"), [("SIGQUIT", ""), ("SIGTERM", "SIGQUIT")])
def test_a_cold_shutdown_hands_back_what_runs_and_its_lock_at_once(
    rig: Rig, order: str, number: str, remapped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMAP_SIGTERM", remapped)
    busy = f"{order}-busy"
    with rig.run(order, children=2) as worker:
        waiting = put_back(rig, worker, order)
        running = tasks.late.apply_async((busy, "gate"), queue=order)
        rig.wait_lines(busy, "begin")
        stop(worker, signal.Signals[number])
    assert [line["what"] for line in rig.lines(busy)] == ["begin", "raised"]
    assert not rig.held(busy)
    rig.release(order)
    elsewhere(rig, order)
    first, second = ran(rig, busy, running, TWICE)
    assert second["publication"] == first["publication"]
    assert second["fence"] > first["fence"]
    ran(rig, order, waiting, ONCE)


@hands_back
def test_with_early_ack_a_cold_shutdown_loses_the_task_and_its_effect_is_in_doubt(
    rig: Rig, order: str
) -> None:
    with rig.run(order, children=1) as worker:
        result = tasks.once_or_doubt.apply_async((order, "gate"), queue=order)
        rig.wait_lines(order, "begin")
        stop(worker, signal.SIGQUIT)
    assert not rig.queue.llen(order)
    assert not result.ready(), (result.result, rig.lines(order), worker.log())
    assert not rig.held(order)
    line = failure(tasks.once_or_doubt.delay(order, "gate"))
    assert line.startswith(f"attempt 1 of '{order}' crashed")
    assert len(rig.lines(order, "begin")) == 1


@hands_back
def test_a_soft_shutdown_lets_quick_tasks_end_and_hands_back_slow_ones(
    rig: Rig, order: str
) -> None:
    slow = f"{order}-slow"
    settings = {"worker_soft_shutdown_timeout": 2}
    with rig.run(order, children=2, settings=settings) as worker:
        quick_one = tasks.late.apply_async((order, "gate"), queue=order)
        slow_one = tasks.late.apply_async((slow, "gate"), queue=order)
        rig.wait_lines(order, "begin")
        rig.wait_lines(slow, "begin")
        worker.process.send_signal(signal.SIGQUIT)
        wait_for(lambda: "Initiating Soft Shutdown" in worker.log(), GIVE_UP)
        rig.open_gate(order)
        gone(worker)
    assert len(rig.lines(order, "end")) == 1
    assert not rig.held(slow)
    elsewhere(rig, order)
    ran(rig, order, quick_one, ONCE)
    ran(rig, slow, slow_one, TWICE)


@hands_back
def test_a_soft_shutdown_of_an_idle_worker_hands_back_what_was_put_back(
    rig: Rig, order: str
) -> None:
    settings = {"worker_soft_shutdown_timeout": 0.5, "worker_enable_soft_shutdown_on_idle": True}
    with rig.run(order, children=1, settings=settings) as worker:
        waiting = put_back(rig, worker, order)
        stop(worker, signal.SIGQUIT)
        assert "Initiating Soft Shutdown" in worker.log()
    rig.release(order)
    elsewhere(rig, order)
    ran(rig, order, waiting, ONCE)


@hands_back
def test_a_cold_shutdown_of_threads_waits_for_the_running_task(rig: Rig, order: str) -> None:
    """Celery has no way to end a thread, and Python waits for it."""
    with rig.run(order, pool="threads", children=1) as worker:
        result = tasks.late.apply_async((order, "gate"), queue=order)
        rig.wait_lines(order, "begin")
        worker.process.send_signal(signal.SIGQUIT)
        wait_for(lambda: "terminate all running tasks" in worker.log(), GIVE_UP)
        rig.open_gate(order)
        gone(worker)
    elsewhere(rig, order)
    ran(rig, order, result, ONCE)


@hands_back
@pytest.mark.parametrize(("pool", "becomes"), [("gevent", "PENDING"), ("solo", "FAILURE")])
def test_a_cold_shutdown_of_gevent_and_solo_loses_the_running_task_even_with_late_ack(
    rig: Rig, order: str, pool: str, becomes: str
) -> None:
    """Celery acks a greenlet it killed; in a solo pool its signal handler breaks the task."""
    with rig.run(order, pool=pool, children=1) as worker:
        result = tasks.late.apply_async((order, "gate"), queue=order)
        rig.wait_lines(order, "begin")
        stop(worker, signal.SIGQUIT)
    assert result.state == becomes
    assert [line["what"] for line in rig.lines(order)] == ["begin", "raised"]
    assert not rig.held(order)


def test_after_a_kill_the_lock_ends_with_its_ttl_and_an_early_acked_task_is_lost(
    rig: Rig, order: str
) -> None:
    with rig.run(order, children=1) as worker:
        result = tasks.early.apply_async((order, "gate"), queue=order)
        rig.wait_lines(order, "begin")
        os.killpg(worker.process.pid, signal.SIGKILL)
        gone(worker)
    assert 0 < rig.store.pttl(f"lock:{order}") <= 1000 * tasks.TTL
    wait_for(lambda: not rig.held(order), GIVE_UP)
    assert not rig.queue.llen(order)
    assert result.state == "PENDING"
    assert state(tasks.early.delay(order)) == "SUCCESS"
