"""Revoked tasks and lost children: the lock is given back, nothing runs that must not."""

from __future__ import annotations

from typing import Any

import pytest
from celery.app.task import Task
from tests.adapters.celery import features, tasks
from tests.adapters.celery.rig import GIVE_UP, Rig, failure, outcome, state
from tests.support.wait import wait_for

SINCE_5_7 = pytest.mark.skipif(
    not hasattr(Task, "retry_on_worker_lost"), reason="this Celery knows no retry_on_worker_lost"
)


def test_a_task_revoked_while_it_is_put_back_runs_no_more(rig: Rig, order: str, task: Any) -> None:
    """Its copy has its id, so the worker drops it."""
    rig.hold(order, 30)
    result = task.delay(order)
    wait_for(lambda: rig.told("job.requeued", order), GIVE_UP)
    result.revoke()
    assert state(result) == "REVOKED"
    rig.release(order)
    assert not rig.lines(order)


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGKILL"])
def test_a_task_terminated_while_it_runs_leaves_the_resource_to_others(
    rig: Rig, order: str, task: Any, signal: str
) -> None:
    """SIGTERM lets the guard give the lock back at once; after SIGKILL it ends with its TTL."""
    result = task.delay(order, "nap 30")
    rig.wait_lines(order, "begin")
    result.revoke(terminate=True, signal=signal)
    assert state(result) == "REVOKED"
    if signal == "SIGTERM":
        wait_for(lambda: rig.told("job.crashed", order) == 1, GIVE_UP)
        assert rig.told("lock.released", order) == 1
    assert outcome(task.delay(order)) == {"order": order, "run": 2}
    assert rig.told("job.ran", order) == 1
    assert len(rig.lines(order, "begin")) == 2  # Its message is acked: it does not come again.


def test_a_terminated_task_is_in_doubt(rig: Rig, order: str) -> None:
    result = tasks.once_or_doubt.delay(order, "nap 30")
    rig.wait_lines(order, "begin")
    result.revoke(terminate=True)
    assert state(result) == "REVOKED"
    line = failure(tasks.once_or_doubt.delay(order, "nap 30"))
    assert line.startswith(f"attempt 1 of '{order}' crashed")
    assert len(rig.lines(order, "begin")) == 1


@SINCE_5_7
@pytest.mark.parametrize("name", ["resent", "resent_late"])
def test_a_task_retried_because_its_child_was_lost_waits_for_its_own_lock(
    rig: Rig, order: str, name: str
) -> None:
    """The retry is no contention: the lock is its own elder's until the TTL ends."""
    result = getattr(features, name).delay(order, "kill")
    assert outcome(result) == {"order": order, "run": 2}
    one, two = rig.lines(order, "begin")
    assert (one["retries"], two["retries"]) == (0, 1)
    assert one["publication"] != two["publication"]
    assert two["contentions"] == rig.told("lock.contended", order) == 0
    assert two["fence"] > one["fence"]


@SINCE_5_7
def test_a_task_whose_child_is_lost_once_more_than_it_may_retry_fails(rig: Rig, order: str) -> None:
    assert "WorkerLostError" in str(type(outcome(features.resent.delay(order, "kill", "kill"))))
    assert len(rig.lines(order, "begin")) == 2


def test_a_failed_task_that_celery_does_not_ack_gives_the_lock_back(rig: Rig, order: str) -> None:
    """`acks_on_failure_or_timeout=False` rejects the message, which ends it here."""
    assert failure(features.rejects.delay(order, "raise value")) == "said so"
    assert not rig.held(order)
    assert outcome(features.rejects.delay(order)) == {"order": order, "run": 2}
