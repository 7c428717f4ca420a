"""A body that lost its lease is interrupted at once, and its task comes back as it was."""

from __future__ import annotations

from typing import Any

from tests.adapters.celery import tasks
from tests.adapters.celery.rig import Rig, failure, outcome, state


def test_a_blocking_call_is_interrupted_and_the_task_completes_later(
    rig: Rig, order: str, task: Any
) -> None:
    assert outcome(task.delay(order, "lose thief,nap 10")) == {"order": order, "run": 2}
    begin, raised, again, _ = rig.lines(order)
    assert raised["error"] == "LeaseInterrupt"
    assert raised["at"] - begin["at"] < 1.5 * tasks.TTL
    assert (again["retries"], again["recoveries"]) == (0, 1)
    assert again["publication"] == begin["publication"]
    assert again["fence"] > begin["fence"]


def test_a_lock_that_vanished_interrupts_too(rig: Rig, order: str, task: Any) -> None:
    assert outcome(task.delay(order, "lose,nap 10")) == {"order": order, "run": 2}
    assert [line["what"] for line in rig.lines(order)] == ["begin", "raised", "begin", "end"]


def test_except_exception_does_not_swallow_the_interrupt(rig: Rig, order: str) -> None:
    assert outcome(tasks.early.delay(order, "lose,swallow 10")) == {"order": order, "run": 2}
    assert not rig.lines(order, "swallowed")


def test_a_body_that_ends_before_it_is_interrupted_is_no_success(rig: Rig, order: str) -> None:
    assert outcome(tasks.early.delay(order, "lose")) == {"order": order, "run": 2}
    assert len(rig.lines(order, "end")) == 2


def test_a_task_that_loses_every_lease_gives_up(rig: Rig, order: str) -> None:
    line = failure(tasks.early.delay(order, "lose", "lose"))
    assert line.startswith(f"gave up 'lock:{order}': 6 attempts crashed")
    assert [line["recoveries"] for line in rig.lines(order, "begin")] == [0, 1, 2, 3, 4, 5]


def test_max_hold_fails_the_task_and_does_not_run_it_again(rig: Rig, order: str) -> None:
    line = failure(tasks.short.delay(order, "nap 10"))
    assert line.startswith(f"lost the lease of 'lock:{order}': max_hold")
    begin, raised = rig.lines(order)
    assert 1 < raised["at"] - begin["at"] < 2.5


def test_an_interrupt_never_hits_the_next_task(rig: Rig, order: str) -> None:
    """The bodies end about when the heartbeat, at TTL / 3, sees that their lock is gone."""
    naps = [0.200 + 0.004 * number for number in range(48)]
    results = [
        tasks.early.delay(f"{order}-{number}", f"lose,nap {nap:.3f}")
        for number, nap in enumerate(naps)
    ]
    canaries = [tasks.outer.delay(f"{order}-c{number}", "nap 0.01") for number in range(48)]
    assert {state(result) for result in [*results, *canaries]} == {"SUCCESS"}
    first = [rig.lines(f"{order}-{number}")[1]["what"] for number in range(48)]
    assert set(first) == {"raised", "end"}  # Else the race was not there.
    assert not any(rig.lines(f"{order}-c{number}", "raised") for number in range(48))
