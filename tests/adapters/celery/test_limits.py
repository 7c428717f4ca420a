"""Celery's time limits and dead children: the lock is given back, or expires with its TTL."""

from __future__ import annotations

from typing import Any

import pytest
from celery.app.task import Task
from tests.adapters.celery import tasks
from tests.adapters.celery.rig import GIVE_UP, Rig, failure, outcome, state
from tests.support.wait import wait_for

BACK = tasks.TTL + 4  # Seconds until a dead child's task has begun again.


def test_a_body_can_catch_the_soft_time_limit(rig: Rig, order: str, task: Any) -> None:
    result = task.apply_async((order, "catch 10"), soft_time_limit=1)
    assert outcome(result) == {"order": order, "run": 1}
    assert [line["what"] for line in rig.lines(order)] == ["begin", "soft limit", "end"]


def test_the_soft_time_limit_fails_the_task_and_gives_the_lock_back(
    rig: Rig, order: str, task: Any
) -> None:
    result = task.apply_async((order, "nap 10"), soft_time_limit=1)
    assert failure(result) == "SoftTimeLimitExceeded()"
    assert not rig.held(order)


def test_after_the_soft_time_limit_the_effect_is_in_doubt(rig: Rig, order: str) -> None:
    failure(tasks.once_or_doubt.apply_async((order, "nap 10"), soft_time_limit=1))
    line = failure(tasks.once_or_doubt.delay(order, "nap 10"))
    assert line.startswith(f"attempt 1 of '{order}' crashed")
    assert len(rig.lines(order, "begin")) == 1


def test_after_the_soft_time_limit_a_task_may_run_again(rig: Rig, order: str) -> None:
    failure(tasks.once_again.apply_async((order, "nap 10"), soft_time_limit=1))
    assert outcome(tasks.once_again.delay(order)) == {"order": order, "run": 2}


@pytest.mark.skipif(
    not hasattr(Task, "acks_on_timeout"), reason="this Celery waits for the visibility timeout"
)
def test_a_task_killed_by_the_hard_time_limit_comes_back(rig: Rig, order: str) -> None:
    tasks.survivor.apply_async((order, "nap 30"), time_limit=1)
    first, second = rig.wait_lines(order, "begin", 2)
    rig.wait_lines(order, "end")
    assert second["at"] - first["at"] < 1 + BACK
    assert second["fence"] > first["fence"]


def test_the_hard_time_limit_fails_the_task_and_its_lock_ends(rig: Rig, order: str) -> None:
    """It is the execution timeout too; whether the interrupt comes before the kill is a race."""
    result = tasks.early.apply_async((order, "nap 30"), time_limit=2)
    assert state(result) == "FAILURE"
    wait_for(lambda: not rig.held(order), GIVE_UP)
    assert len(rig.lines(order, "begin")) == 1


def test_a_hard_time_limit_on_the_command_line_counts(rig: Rig, order: str) -> None:
    """A task may hold for a tenth less, so that it is told before it is killed."""
    with rig.run(order, children=1, options=("--time-limit", "3")):
        result = tasks.early.apply_async((order, "nap 30"), queue=order)
        line = failure(result)
    assert line.startswith(f"lost the lease of 'lock:{order}': max_hold")


def test_a_task_whose_child_is_killed_runs_again_within_seconds(rig: Rig, order: str) -> None:
    result = tasks.late.delay(order, "nap 0.5,kill")
    assert outcome(result) == {"order": order, "run": 2}
    first, second, _ = rig.lines(order)
    assert second["at"] - first["at"] < 0.5 + BACK
    assert second["fence"] > first["fence"]
    assert second["publication"] == first["publication"]
    assert second["retries"] == 0
