"""Chains, groups and chords of guarded tasks come to their end."""

from __future__ import annotations

from typing import Any

from celery import chain, chord, group
from tests.adapters.celery import tasks
from tests.adapters.celery.rig import GIVE_UP, Rig, outcome
from tests.support.wait import wait_for

SKIPPED = {"skipped": True}


def test_a_chain_goes_on_after_a_skipped_task(rig: Rig, order: str) -> None:
    rig.hold(order, 30)
    result = chain(tasks.skips.si(order), tasks.note.si(order, "next")).delay()
    assert outcome(result) == "next"
    rig.wait_lines(order, "next")


def test_a_chain_goes_on_after_a_task_that_was_put_back(rig: Rig, order: str, task: Any) -> None:
    rig.hold(order, 0.5)
    assert outcome(chain(task.si(order), tasks.note.si(order, "next")).delay()) == "next"
    assert [line["what"] for line in rig.lines(order)] == ["begin", "end", "next"]


def test_a_group_of_contending_tasks_gives_all_results(rig: Rig, order: str, task: Any) -> None:
    results = outcome(group(task.si(order, "nap 0.05", "nap 0.05") for _ in range(3)).delay())
    assert sorted(result["run"] for result in results) == [1, 2, 3]


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
