"""A chord whose members are guarded calls back or errs, once, whatever becomes of its members."""

from __future__ import annotations

from typing import Any

from celery import chord
from tests.adapters.celery import features, tasks
from tests.adapters.celery.rig import GIVE_UP, Rig, outcome, state
from tests.support.wait import wait_for

SKIPPED = {"skipped": True}


def calls_back(rig: Rig, order: str, header: list[Any], body: Any = None) -> Any:
    """Let a chord end by its callback, once; return what that got."""
    results = outcome(chord(header)(body or tasks.collect.s(order)))
    assert len(rig.lines(order, "collected")) == 1
    return results


def errs(rig: Rig, order: str, header: list[Any]) -> None:
    """Let a chord end by the errbacks of its body, both kinds, once each."""
    body = tasks.collect.s(order).on_error(tasks.note.si(order, "immutable errback"))
    body.link_error(tasks.errback.s(order))
    result = chord(header)(body)
    assert state(result) == "FAILURE"
    assert type(result.result).__name__ == "ChordError"
    for what in ("immutable errback", "errback"):
        rig.wait_lines(order, what)
        assert len(rig.lines(order, what)) == 1
    assert not rig.lines(order, "collected")


def test_a_chord_with_a_skipped_member_calls_back(rig: Rig, order: str, task: Any) -> None:
    rig.hold(order, 0.8)
    header = [tasks.skips.si(order), task.si(order), tasks.note.si(order, "noted")]
    results = outcome(chord(header)(tasks.collect.s(order)))
    assert SKIPPED in results
    assert {"order": order, "run": 1} in results
    assert len(rig.lines(order, "collected")) == 1


def test_a_copy_of_a_chord_member_does_not_end_the_chord_early(
    rig: Rig, order: str, task: Any
) -> None:
    limbo = f"limbo-{order}"
    waits = tasks.outer.si(f"{order}-gate", "gate")
    result = chord([task.si(order).set(queue=limbo), waits])(tasks.collect.s(order))
    message = rig.caught(limbo)
    for _ in range(2):
        rig.deliver(message)
    wait_for(lambda: rig.told("job.replayed", order), GIVE_UP)
    assert not rig.lines(order, "collected")
    rig.open_gate(f"{order}-gate")
    assert outcome(result)[0] == {"order": order, "run": 1}
    assert len(rig.lines(order, "begin")) == len(rig.lines(order, "collected")) == 1


def test_a_chord_with_a_replayed_member_calls_back(rig: Rig, order: str) -> None:
    kept = outcome(tasks.once_again.delay(order))
    header = [tasks.once_again.si(order), tasks.note.si(order, "noted")]
    assert calls_back(rig, order, header) == [kept, "noted"]
    assert rig.told("job.replayed", order) == 1
    assert len(rig.lines(order, "begin")) == 1


def test_a_chord_with_a_member_that_gave_up_errs(rig: Rig, order: str) -> None:
    rig.hold(order, 30)
    errs(rig, order, [tasks.gives_up.si(order), tasks.note.si(order, "noted")])
    assert rig.told("job.gave_up", order) == 1


def test_a_chord_of_a_skipped_a_replayed_and_a_gave_up_member_errs(rig: Rig, order: str) -> None:
    outcome(tasks.once_again.delay(f"{order}-replayed"))
    rig.hold(order, 30)
    header = [tasks.skips, tasks.once_again, tasks.gives_up]
    orders = [order, f"{order}-replayed", order]
    errs(rig, order, [task.si(each) for task, each in zip(header, orders, strict=True)])
    told = [rig.told(event, order) for event in ("job.skipped", "job.replayed", "job.gave_up")]
    assert told == [1, 1, 1]


def test_a_chord_with_a_member_that_fails_after_it_was_put_back_errs(
    rig: Rig, order: str, task: Any
) -> None:
    rig.hold(order, 0.4)
    errs(rig, order, [task.si(order, "raise value"), tasks.note.si(order, "noted")])
    (begin,) = rig.lines(order, "begin")
    assert begin["contentions"] == rig.told("job.requeued", order) > 0
    assert rig.told("job.failed", order) == 1


def test_a_chord_with_a_member_that_lost_its_lease_once_calls_back(
    rig: Rig, order: str, task: Any
) -> None:
    header = [task.si(order, "lose"), tasks.note.si(order, "noted")]
    assert calls_back(rig, order, header) == [{"order": order, "run": 2}, "noted"]
    assert [line["recoveries"] for line in rig.lines(order, "begin")] == [0, 1]


def test_a_chord_with_a_member_that_was_retried_calls_back(rig: Rig, order: str, task: Any) -> None:
    header = [task.si(order, "retry 0"), tasks.note.si(order, "noted")]
    assert calls_back(rig, order, header) == [{"order": order, "run": 2}, "noted"]
    assert [line["retries"] for line in rig.lines(order, "begin")] == [0, 1]


def test_a_chord_with_a_member_that_ignores_its_result_calls_back(rig: Rig, order: str) -> None:
    rig.hold(order, 0.4)
    header = [features.quiet.si(order), features.quiet_skips.si(order)]
    assert len(calls_back(rig, order, header)) == 2
    assert rig.lines(order, "begin")[0]["contentions"] > 0


def test_a_chord_with_a_member_that_is_replaced_calls_back(rig: Rig, order: str, task: Any) -> None:
    header = [task.si(order, "replace chain"), tasks.note.si(order, "noted")]
    assert calls_back(rig, order, header) == ["two", "noted"]


def test_a_member_can_add_to_its_chord(rig: Rig, order: str) -> None:
    rig.hold(order, 0.3)
    header = [tasks.early.si(order, "grow more"), tasks.early.si(f"{order}-b")]
    assert "more" in calls_back(rig, order, header)
    assert len(rig.lines(order, "more")) == 1


def test_a_chord_with_a_member_that_is_revoked_while_it_is_put_back_errs(
    rig: Rig, order: str
) -> None:
    rig.hold(order, 30)
    task_id = f"member-{order}"
    wait_and_revoke = tasks.early.si(order).set(task_id=task_id)
    result = chord([wait_and_revoke, tasks.note.si(order, "noted")])(tasks.collect.s(order))
    wait_for(lambda: rig.told("job.requeued", order), GIVE_UP)
    tasks.app.control.revoke(task_id)
    assert state(result) == "FAILURE"
    assert not rig.lines(order, "begin")


def test_the_body_of_a_chord_can_be_put_back(rig: Rig, order: str, task: Any) -> None:
    rig.hold(order, 0.5)
    result = chord([tasks.note.si(order, "noted")] * 2)(task.si(order))
    assert outcome(result) == {"order": order, "run": 1}
    (begin,) = rig.lines(order, "begin")
    assert begin["contentions"] == rig.told("job.requeued", order) > 0
