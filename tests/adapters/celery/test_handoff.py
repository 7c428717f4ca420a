"""A task that is parked comes back when it is called, in order, and costs two deliveries."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

import pytest
from kombu.connection import Connection
from tests.adapters.celery import tasks
from tests.adapters.celery.rig import GIVE_UP, Rig, Worker, failure, outcome, state
from tests.support.wait import wait_for


@pytest.fixture(params=["in_line", "in_line_early"])
def task(request: pytest.FixtureRequest) -> object:
    return getattr(tasks, request.param)


def _logged(worker: Worker, event: str, count: int) -> bool:
    return worker.log().count(event) >= count


def wait_parked(rig: Rig, order: str, count: int) -> None:
    wait_for(lambda: rig.told("job.parked", order) >= count, GIVE_UP)


def test_tasks_take_turns_in_the_order_in_which_they_came(rig: Rig, order: str, task: Any) -> None:
    rig.hold(order, 60)
    results = []
    for number in range(12):
        results.append(task.delay(order))
        wait_parked(rig, order, number + 1)
    rig.release(order)
    assert [state(result) for result in results] == ["SUCCESS"] * 12
    begins = rig.lines(order, "begin")
    assert [line["task_id"] for line in begins] == [result.id for result in results]
    assert {line["retries"] for line in begins} == {0}
    assert {line["contentions"] for line in begins} == {1}
    # The first may be called by any worker of this application that sweeps, the others by these.
    wait_for(lambda: rig.told("job.called", order) >= 11, GIVE_UP)
    assert not rig.store.keys(f"*{order}*:parked")


def test_a_parked_task_gives_up_when_its_time_is_over(rig: Rig, order: str) -> None:
    rig.hold(order, 60)
    line = failure(tasks.impatient.delay(order))
    assert line.startswith(f"gave up 'lock:{order}': contended for ")
    assert not rig.lines(order)


def test_of_tasks_that_coalesce_the_newest_runs_and_the_others_end(rig: Rig, order: str) -> None:
    running = tasks.newest.delay(order, "gate")
    rig.wait_lines(order, "begin")
    results = []
    for number in range(4):
        results.append(tasks.newest.delay(order, "", f"number {number}"))
        wait_parked(rig, order, number + 1)
    assert [outcome(result) for result in results[:3]] == [None, None, None]
    rig.open_gate(order)
    assert outcome(running)["run"] == 1
    assert outcome(results[3])["run"] == 2
    assert len(rig.lines(order, "begin")) == 2


def test_a_waiting_chain_goes_on(rig: Rig, order: str, task: Any) -> None:
    rig.hold(order, 60)
    result = (task.si(order) | tasks.note.si(order, "next")).delay()
    wait_parked(rig, order, 1)
    rig.release(order)
    assert outcome(result) == "next"


def test_a_parked_task_comes_back_after_every_worker_died(rig: Rig, order: str) -> None:
    """The next worker has run no task that could have told it of the line."""
    queue = f"orphans-{order}"
    rig.hold(order, 60)
    with rig.run(queue, children=1) as worker:
        result = tasks.in_line.apply_async((order,), queue=queue)
        wait_for(lambda: "job.parked" in worker.log(), GIVE_UP)
        os.killpg(worker.process.pid, signal.SIGKILL)
    rig.release(order)
    assert not rig.lines(order)
    with rig.run(queue, children=1, name=f"heir-{order}"):
        assert state(result) == "SUCCESS"
    assert not rig.store.keys(f"*{order}*:parked")


def test_a_task_goes_back_to_its_own_queue_whoever_calls_it(rig: Rig, order: str) -> None:
    one, other = f"one-{order}", f"other-{order}"
    with rig.run(one, children=1), rig.run(other, children=1) as second:
        running = tasks.in_line.apply_async((order, "gate"), queue=one)
        rig.wait_lines(order, "begin")
        parked = tasks.in_line.apply_async((order,), queue=other)
        wait_for(lambda: "job.parked" in second.log(), GIVE_UP)
        rig.open_gate(order)
        assert [state(running), state(parked)] == ["SUCCESS"] * 2
        assert second.log().count(parked.id) > 1
    first_pid, second_pid = [line["pid"] for line in rig.lines(order, "begin")]
    assert first_pid != second_pid


def test_workers_of_that_name_at_another_broker_leave_it_alone(rig: Rig, order: str) -> None:
    """The shared worker sweeps the same store: what it published would be lost here."""
    queue, elsewhere = f"elsewhere-{order}", rig.database(3)
    connection: Any = Connection(elsewhere)  # type: ignore[no-untyped-call]
    with rig.run(queue, broker_url=elsewhere, children=1) as worker, connection:
        for number in range(4):
            own = f"{order}-{number}"
            rig.hold(own, 60)
            result = tasks.in_line.apply_async((own,), queue=queue, connection=connection)
            wait_for(partial(_logged, worker, "job.parked", number + 1), GIVE_UP)
            rig.release(own)
            assert state(result) == "SUCCESS"
