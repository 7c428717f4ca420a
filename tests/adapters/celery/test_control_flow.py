"""What Celery itself understands passes through a guard and counts once."""

from __future__ import annotations

from typing import Any

from tests.adapters.celery import features, tasks
from tests.adapters.celery.rig import GIVE_UP, Rig, failure, outcome, state
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


def test_a_retry_with_other_arguments_has_them(rig: Rig, order: str, task: Any) -> None:
    """It may also begin before the body that published it is over."""
    result = task.delay(order, "change 0.05")
    assert outcome(result) == {"order": order, "run": 2}
    one, two = rig.lines(order, "begin")
    assert (one["retries"], two["retries"]) == (0, 1)
    assert one["publication"] != two["publication"]
    assert rig.told("job.ran", order) == 1
    assert rig.told("job.failed", order) == rig.told("lock.contended", order) == 0


def test_retry_raises_the_error_it_was_given_when_no_retry_is_left(
    rig: Rig, order: str, task: Any
) -> None:
    assert failure(task.delay(order, "exhaust spent")) == "spent"
    assert len(rig.lines(order, "begin")) == 1
    assert rig.told("job.failed", order) == 1


def test_a_retry_that_is_not_thrown_lets_its_task_succeed_and_runs_as_well(
    rig: Rig, order: str, task: Any
) -> None:
    task.delay(order, "quietly")
    rig.wait_lines(order, "end", 2)
    assert [line["retries"] for line in rig.lines(order, "begin")] == [0, 1]


def test_a_retry_that_is_not_thrown_is_answered_from_the_record(rig: Rig, order: str) -> None:
    """Its task is done, so the request is."""
    result = features.remembers.delay(order, "quietly")
    wait_for(lambda: rig.told("job.replayed", order), GIVE_UP)
    assert outcome(result) == {"order": order, "run": 1}
    assert len(rig.lines(order, "begin")) == 1


def test_a_contended_retry_keeps_what_it_spent(rig: Rig, order: str, task: Any) -> None:
    task.delay(order, "retry 0.3", "retry 0")
    rig.wait_lines(order, "raised")
    wait_for(lambda: not rig.held(order), GIVE_UP)
    rig.hold(order, 0.8)
    one, two, three = rig.wait_lines(order, "begin", 3)
    assert [line["retries"] for line in (one, two, three)] == [0, 1, 2]
    assert (one["contentions"], three["contentions"]) == (0, 0)
    assert two["contentions"] == rig.told("job.requeued", order) > 0


def test_autoretry_for_everything_leaves_a_contended_task_alone(rig: Rig, order: str) -> None:
    rig.hold(order, 0.4)
    assert outcome(features.stubborn.delay(order)) == {"order": order, "run": 1}
    (begin,) = rig.lines(order, "begin")
    assert begin["retries"] == 0
    assert begin["contentions"] == rig.told("job.requeued", order) > 0


def test_autoretry_with_backoff_can_retry_contention(rig: Rig, order: str) -> None:
    rig.hold(order, 0.4)
    assert outcome(features.backs_off.delay(order)) == {"order": order, "run": 1}
    (begin,) = rig.lines(order, "begin")
    assert begin["contentions"] == 0
    assert begin["retries"] == rig.told("lock.contended", order) > 0


def test_autoretry_can_retry_what_held_for_too_long(rig: Rig, order: str) -> None:
    assert outcome(features.second_wind.delay(order, "nap 10")) == {"order": order, "run": 2}
    begins = rig.lines(order, "begin")
    assert [(line["retries"], line["recoveries"]) for line in begins] == [(0, 0), (1, 0)]


def test_autoretry_leaves_a_lost_lease_alone(rig: Rig, order: str) -> None:
    assert outcome(features.stubborn.delay(order, "lose")) == {"order": order, "run": 2}
    begins = rig.lines(order, "begin")
    assert [(line["retries"], line["recoveries"]) for line in begins] == [(0, 0), (0, 1)]


def test_autoretry_does_not_drop_a_task_that_cannot_be_put_back(rig: Rig, order: str) -> None:
    """Its own publishing fails just as ours did, and then it rejects the message for good."""
    features.stubborn.delay(order, "spoil,lose")
    rig.wait_lines(order, "end", 2)
    begins = rig.lines(order, "begin")
    assert [(line["retries"], line["recoveries"]) for line in begins] == [(0, 0), (0, 0)]
    assert rig.told("job.stranded", order) == 1
