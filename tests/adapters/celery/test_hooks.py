"""Which hooks and signals of Celery a guarded task sets off, and in which order."""

from __future__ import annotations

from typing import Any

from tests.adapters.celery import features
from tests.adapters.celery.rig import GIVE_UP, Rig, outcome
from tests.support.wait import wait_for

BEFORE = ["task_prerun", "before_start"]
SUCCESS = ["on_success", "task_success", "after_return", "task_postrun"]


def told(rig: Rig, order: str, times: int = 1) -> list[str]:
    """Wait until so many deliveries are over; return what was told, body included."""
    rig.wait_lines(order, "task_postrun", times)
    return [line["what"] for line in rig.lines(order)]


def test_a_task_that_runs_succeeds_once(rig: Rig, order: str) -> None:
    features.hooked.delay(order)
    assert told(rig, order) == [*BEFORE, "begin", "end", *SUCCESS]


def test_a_task_put_back_neither_succeeds_nor_fails_nor_is_retried(rig: Rig, order: str) -> None:
    rig.hold(order, 30)
    features.hooked.delay(order)
    wait_for(lambda: rig.told("job.requeued", order) >= 2, GIVE_UP)
    rig.release(order)
    rig.wait_lines(order, "end")
    puts = rig.told("job.requeued", order)
    lines = told(rig, order, puts + 1)
    each = [*BEFORE, "task_postrun"]
    assert lines == [*each * puts, *BEFORE, "begin", "end", *SUCCESS]
    states = [line["state"] for line in rig.lines(order, "task_postrun")]
    assert states == ["IGNORED"] * puts + ["SUCCESS"]


def test_a_task_put_back_after_a_lost_lease_does_not_fail(rig: Rig, order: str) -> None:
    features.hooked.delay(order, "lose")
    lines = told(rig, order, 2)
    first = [*BEFORE, "begin", "end", "task_postrun"]
    assert lines == [*first, *BEFORE, "begin", "end", *SUCCESS]


def test_a_replayed_task_succeeds_too(rig: Rig, order: str) -> None:
    """What waits for its hooks or its callbacks goes on."""
    message = rig.captured(features.hooked, order)
    for times in (1, 2):
        rig.deliver(message)
        told(rig, order, times)
    assert told(rig, order) == [*BEFORE, "begin", "end", *SUCCESS, *BEFORE, *SUCCESS]


def test_a_task_that_fails_fails_once(rig: Rig, order: str) -> None:
    features.hooked.delay(order, "raise value")
    lines = told(rig, order)
    assert lines[:4] == [*BEFORE, "begin", "raised"]
    assert sorted(lines[4:-1]) == ["after_return", "on_failure", "task_failure"]


def test_a_task_that_retries_is_retried_once(rig: Rig, order: str) -> None:
    features.hooked.delay(order, "change 0.01")
    lines = told(rig, order, 2)
    for what in ("on_retry", "task_retry", "on_success", "task_success"):
        assert lines.count(what) == 1, what
    assert "on_failure" not in lines
    assert "task_failure" not in lines


def test_a_class_that_overrides_the_call_is_guarded(rig: Rig, order: str) -> None:
    work: Any
    for number, work in enumerate((features.calling, features.running)):
        each = f"{order}-{number}"
        rig.hold(each, 0.3)
        assert outcome(work.delay(each)) == {"order": each, "run": 1}
        (begin,) = rig.lines(each, "begin")
        assert begin["contentions"] == rig.told("job.requeued", each) > 0
        assert len(rig.lines(each, "called")) == begin["contentions"] + 1
