"""Chains, groups and links of guarded tasks come to their end, also when made inside of one."""

from __future__ import annotations

from typing import Any

import pytest
from celery import chain, chord, group
from tests.adapters.celery import tasks
from tests.adapters.celery.rig import Rig, failure, outcome, state


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


def test_a_chain_ends_at_a_task_that_gives_up_and_tells_its_errback(rig: Rig, order: str) -> None:
    rig.hold(order, 30)
    canvas = chain(tasks.gives_up.si(order), tasks.note.si(order, "next"))
    result: Any = canvas.apply_async(link_error=tasks.note.si(order, "failed"))
    rig.wait_lines(order, "failed")
    assert state(result.parent) == "FAILURE"
    assert not rig.lines(order, "next")
    assert rig.told("job.gave_up", order) == 1


def test_a_chain_goes_on_after_a_replayed_task(rig: Rig, order: str) -> None:
    first = outcome(tasks.once_again.delay(order))
    result = chain(tasks.once_again.s(order), tasks.collect.s(order)).delay()
    assert outcome(result) == first
    assert rig.told("job.replayed", order) == 1
    assert len(rig.lines(order, "begin")) == 1


def test_a_chain_goes_on_after_a_task_that_lost_its_lease(rig: Rig, order: str) -> None:
    result = chain(tasks.early.si(order, "lose"), tasks.note.si(order, "next")).delay()
    assert outcome(result) == "next"
    assert [line["recoveries"] for line in rig.lines(order, "begin")] == [0, 1]
    assert len(rig.lines(order, "next")) == 1


def test_nested_canvases_of_contending_tasks_end(rig: Rig, order: str) -> None:
    """A chain of a group of a task and a chord, all of one resource, then one more task."""
    inner = chord([tasks.early.si(order), tasks.late.si(order)], tasks.collect.s(f"{order}-inner"))
    canvas = chain(
        tasks.early.si(order),
        group(tasks.late.si(order), inner),
        tasks.collect.s(f"{order}-outer"),
        tasks.late.si(order),
    )
    assert outcome(canvas.delay()) == {"order": order, "run": 5}
    assert len(rig.lines(order, "begin")) == len(rig.lines(order, "end")) == 5
    (inside,), (outside,) = (rig.lines(f"{order}-{name}") for name in ("inner", "outer"))
    assert len(inside["results"]) == len(outside["results"]) == 2
    begins = rig.lines(order, "begin")
    assert sum(line["contentions"] for line in begins) == rig.told("job.requeued", order)
    assert {line["retries"] for line in begins} == {0}


def test_a_link_is_called_once_by_a_task_that_was_put_back(rig: Rig, order: str, task: Any) -> None:
    rig.hold(order, 0.4)
    links = [tasks.note.si(order, "linked"), group(tasks.note.si(order, "grouped"))]
    outcome(chain(task.si(order).set(link=links), tasks.note.si(order, "next")).delay())
    for what in ("linked", "grouped", "next"):
        rig.wait_lines(order, what)
    assert [len(rig.lines(order, what)) for what in ("linked", "grouped", "next")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("shape", "lines", "value"),
    [
        ("note", ["one"], "one"),
        ("chain", ["one", "two"], "two"),
        ("group", ["one", "two"], ["one", "two"]),
        ("chord", ["collected", "one"], ["one"]),
    ],
)
def test_a_task_can_be_replaced_by_a_canvas(
    rig: Rig, order: str, task: Any, shape: str, lines: list[str], value: Any
) -> None:
    rig.hold(order, 0.3)
    result = chain(task.si(order, f"replace {shape}"), tasks.collect.s(f"{order}-end")).delay()
    assert outcome(result) == value
    told = [line["what"] for line in rig.lines(order)]
    assert sorted(told) == sorted(["begin", "raised", *lines])
    assert not rig.held(order)
    assert rig.told("job.failed", order) == rig.told("job.crashed", order) == 0


def test_a_task_can_be_replaced_by_one_for_the_same_resource(
    rig: Rig, order: str, task: Any
) -> None:
    """It is published while the lease of the first still runs, and has its id."""
    result = task.delay(order, "replace guarded")
    assert outcome(result) == {"order": order, "run": 2}
    one, two = rig.lines(order, "begin")
    assert one["task_id"] == two["task_id"]
    assert one["publication"] != two["publication"]


def test_a_task_can_send_another_for_the_same_resource(rig: Rig, order: str, task: Any) -> None:
    outcome(task.delay(order, "send early,nap 0.1"))
    rig.wait_lines(order, "end", 2)
    parent, child = rig.lines(order, "begin")
    assert parent["task_id"] != child["task_id"]
    assert [line["what"] for line in rig.lines(order)] == ["begin", "end"] * 2
    assert child["contentions"] == rig.told("job.requeued", order)


def test_a_task_that_is_unknown_to_the_publisher_is_put_back(rig: Rig, order: str) -> None:
    rig.hold(order, 0.3)
    result = tasks.app.send_task("early", (order, "raise value"))
    assert failure(result) == "said so"
    assert rig.lines(order, "begin")[0]["contentions"] > 0
