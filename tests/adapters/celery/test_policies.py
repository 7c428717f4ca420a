"""Each policy ends a contended task in its own way, by what Celery itself understands."""

from __future__ import annotations

import time

from tests.adapters.celery import tasks
from tests.adapters.celery.rig import Rig, failure, outcome, state


def test_skip_succeeds_with_the_value_of_the_policy(rig: Rig, order: str) -> None:
    rig.hold(order, 30)
    result = tasks.skips.delay(order)
    assert (state(result), result.result) == ("SUCCESS", {"skipped": True})
    assert not rig.lines(order)


def test_fail_takes_the_failure_path(rig: Rig, order: str) -> None:
    rig.hold(order, 30)
    line = failure(tasks.fails.delay(order))
    assert line.startswith(f"'lock:{order}' is held by another program")
    assert not rig.lines(order)


def test_fail_can_be_retried_by_celery(rig: Rig, order: str) -> None:
    rig.hold(order, 0.5)
    assert outcome(tasks.insists.delay(order)) == {"order": order, "run": 1}
    (begin,) = rig.lines(order, "begin")
    assert begin["retries"] > 0
    assert begin["contentions"] == 0


def test_wait_keeps_the_slot_until_the_resource_is_free(rig: Rig, order: str) -> None:
    rig.hold(order, 0.5)
    assert outcome(tasks.waits.delay(order)) == {"order": order, "run": 1}
    (begin,) = rig.lines(order, "begin")
    assert (begin["retries"], begin["contentions"]) == (0, 0)


def test_requeue_gives_up_when_its_time_is_over(rig: Rig, order: str) -> None:
    rig.hold(order, 30)
    line = failure(tasks.gives_up.delay(order))
    assert line.startswith(f"gave up 'lock:{order}': contended for ")
    assert not rig.lines(order)


def test_requeue_can_end_by_skipping(rig: Rig, order: str) -> None:
    rig.hold(order, 30)
    result = tasks.drops_out.delay(order)
    assert (state(result), result.result) == ("SUCCESS", None)
    assert not rig.lines(order)


def test_a_delay_stays_below_a_third_of_the_visibility_timeout(rig: Rig, order: str) -> None:
    """By its own numbers the policy would wait for at least 15 s, when the broker redelivers."""
    rig.hold(order, 0.3)
    sent = time.monotonic()
    assert outcome(tasks.patient.delay(order)) == {"order": order, "run": 1}
    (begin,) = rig.lines(order, "begin")
    assert begin["contentions"] == 1
    assert begin["at"] - sent < tasks.VISIBILITY / 3 + 2


def test_a_retry_is_not_skipped_because_of_the_attempt_that_made_it(rig: Rig, order: str) -> None:
    """Celery publishes it from within the body, whose lease is still running then."""
    result = tasks.skips.delay(order, "hasten")
    rig.wait_lines(order, "raised")
    assert outcome(result) == {"order": order, "run": 2}


def test_the_publisher_gets_the_very_error_that_the_guard_raised(rig: Rig, order: str) -> None:
    rig.hold(order, 30)
    assert type(outcome(tasks.fails.delay(order))).__name__ == "Contended"
