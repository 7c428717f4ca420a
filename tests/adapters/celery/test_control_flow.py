"""What Celery itself understands passes through a guard and counts once."""

from __future__ import annotations

from typing import Any

from tests.adapters.celery import tasks
from tests.adapters.celery.rig import GIVE_UP, Rig, outcome, state
from tests.support.wait import wait_for


def test_a_retry_is_counted_once_and_gives_the_lock_back(rig: Rig, order: str, task: Any) -> None:
    result = task.delay(order, "retry", "retry")
    assert state(result) == "FAILURE"  # The third retry is one too many.
    begins = rig.lines(order, "begin")
    assert [line["retries"] for line in begins] == [0, 1, 2]
    assert [line["contentions"] for line in begins] == [0, 0, 0]
    assert not rig.held(order)


def test_a_retry_that_comes_before_the_lock_is_free_is_put_back(
    rig: Rig, order: str, task: Any
) -> None:
    """Celery publishes a retry from within the body, whose lease is still running then."""
    assert outcome(task.delay(order, "hasten")) == {"order": order, "run": 2}
    assert [line["retries"] for line in rig.lines(order, "begin")] == [0, 1]


def test_autoretry_counts_once(rig: Rig, order: str) -> None:
    assert outcome(tasks.flaky.delay(order, "raise value")) == {"order": order, "run": 2}
    assert [line["retries"] for line in rig.lines(order, "begin")] == [0, 1]


def test_a_failure_fails_the_task_and_gives_the_lock_back(rig: Rig, order: str, task: Any) -> None:
    result = task.delay(order, "raise value")
    assert state(result) == "FAILURE"
    assert isinstance(result.result, ValueError)
    assert not rig.held(order)


def test_ignore_raised_by_the_body_stores_no_result(rig: Rig, order: str, task: Any) -> None:
    result = task.delay(order, "raise ignore")
    rig.wait_lines(order, "raised")
    wait_for(lambda: not rig.held(order), GIVE_UP)
    assert outcome(task.delay(order)) == {"order": order, "run": 2}
    assert result.state == "PENDING"
    assert len(rig.lines(order, "begin")) == 2


def test_reject_raised_by_the_body_drops_the_message(rig: Rig, order: str) -> None:
    tasks.late.delay(order, "raise reject")
    (line,) = rig.wait_lines(order, "raised")
    assert line["error"] == "Reject"
    wait_for(lambda: not rig.held(order), GIVE_UP)
    assert outcome(tasks.late.delay(order)) == {"order": order, "run": 2}
    assert len(rig.lines(order, "begin")) == 2
