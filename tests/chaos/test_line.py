"""The judge on lines: what must not happen there, and what a fault excuses."""

from __future__ import annotations

from typing import Any

import pytest
from chaos.checker import judge
from chaos.judgement import HASTE
from chaos.plan import Plan
from chaos.report import Report
from tests.chaos.story import Story, violated


def gives_up(story: Story, at: float, process: str, job: str) -> Story:
    told = {"job": job, "how": "raised", "error": "GaveUp", "text": "contended"}
    return story.tell(at, process, "outcome", **told)


def in_turn(task: str = "in_line", *, called_at: float = 1.35, came_at: float = 1.4) -> Story:
    """j holds the resource, a is parked behind it, is called at j's end, and comes."""
    story = Story().accept("j", "e").accept("a", "f", task).accept("b", "g", "in_line")
    story.grant(1, "p", 10, "j").run(1, "p", 10)
    story.park(1.1, "q", "a")
    return (
        story.call(called_at, "p", "a").grant(came_at, "q", 20, "a").run(came_at, "q", 20, "f", "a")
    )


def with_late_comer(story: Story, fence: int) -> Story:
    """b comes first when a is parked already."""
    return story.grant(2.6, "r", fence, "b").run(2.6, "r", fence, "g", "b")


# ---------------------------------------------------------------------- ends


def test_a_job_that_was_parked_and_then_ran_is_counted_as_such() -> None:
    found = judge(with_late_comer(in_turn(), 30).events)
    assert not found.failures("no-loss")
    assert found.counts["parked"] == found.counts["parked, then ran"] == 1


def test_a_parked_job_that_never_ends_is_lost() -> None:
    story = Story().accept("j", "e", "in_line").park(1, "p", "j")
    assert violated(story) == {"lost"}
    assert "parked 1 times" in judge(story.events).findings["lost"][0]
    assert judge(story.events).counts["parked, then nowhere"] == 1


def test_a_job_that_still_lies_in_line_is_stuck_and_not_lost() -> None:
    story = Story().accept("j", "e", "in_line").park(1, "p", "j")
    assert violated(story.tell(9, "main", "left", pub="j-pub")) == {"stuck"}


@pytest.mark.parametrize(("effect", "found"), [("poison:e", set()), ("e", {"set aside"})])
def test_only_what_cannot_be_published_may_be_set_aside(effect: str, found: set[str]) -> None:
    story = Story().accept("j", effect, "in_line").park(1, "p", "j")
    story.tell(9, "main", "dead", pub="j-pub")
    assert violated(story) == found
    assert judge(story.events).counts["parked, then dead"] == 1


def test_a_job_that_was_set_aside_unseen_is_found() -> None:
    assert violated(Story().tell(9, "main", "dead", pub="who")) == {"set aside"}


def test_a_job_that_gave_up_in_its_own_time_is_counted_and_not_faulted() -> None:
    story = Story().accept("j", "e", "hasty").park(1, "p", "j").deliver(1 + HASTE, "q", "j")
    found = judge(gives_up(story, 1 + HASTE, "q", "j").events)
    assert not found.failures("no-loss")
    assert found.counts["parked, then gave up"] == 1


def test_a_job_that_gave_up_before_its_time_is_found() -> None:
    story = Story().accept("j", "e", "hasty").park(1, "p", "j")
    assert violated(gives_up(story, HASTE, "q", "j")) == {"gave up early"}


def test_a_job_that_has_time_must_not_give_up() -> None:
    story = Story().accept("j", "e", "in_line").park(1, "p", "j")
    assert violated(gives_up(story, 9, "q", "j")) == {"unexpected error"}


# ---------------------------------------------------------------------- superseded


def superseded(task: str = "newest", effect: str = "f", begins: float = 3) -> Story:
    """j comes at 2 and is superseded; k, which runs from `begins` on, is to make it good."""
    story = Story().accept("j", "e", task).accept("k", effect, "newest")
    story.park(2, "p", "j").deliver(2.5, "q", "j").end(2.5, "q", "j", None)
    return story.run(begins, "r", 10, effect, "k")


def test_a_superseded_job_is_made_good_by_a_later_one_and_is_not_lost() -> None:
    found = judge(superseded().events)
    assert not found.failures("no-loss")
    assert found.counts["superseded"] == found.counts["parked, then superseded"] == 1
    assert found.counts["ended by being superseded"] == 1
    assert found.counts["ended by return"] == 1


def test_a_job_that_is_superseded_by_one_that_ran_before_it_came_is_found() -> None:
    story = superseded(begins=1)
    assert violated(story) == {"superseded by nobody"}
    assert judge(story.events).failures("loss") == []


def test_a_job_that_is_superseded_by_an_older_one_is_found() -> None:
    story = Story().accept("j", "e", "newest").accept("k", "f", "newest").park(1, "r", "k")
    story.park(2, "p", "j").deliver(2.5, "q", "j").end(2.5, "q", "j", None)
    story.run(3, "r", 10, "f", "k")
    assert violated(story) == {"superseded by nobody"}
    again = story.deliver(4, "r", "k", again=True)
    assert violated(again) == set()  # Of a copy nobody knows when it came.


def test_what_the_queue_lost_may_have_been_the_newest() -> None:
    story = superseded(begins=1).accept("l", "g", "newest")
    assert violated(story.tell(9, "main", "never noted", job="l")) == set()


def test_a_job_that_coalesces_with_none_returns_what_it_did() -> None:
    assert violated(superseded("in_line")) == {"wrong replay"}


# ---------------------------------------------------------------------- order


def test_who_comes_later_and_runs_later_is_in_order() -> None:
    story = with_late_comer(in_turn(), 30)
    assert violated(story) == set()
    assert judge(story.events).counts["judged for order"] == 1


def test_who_comes_later_and_runs_before_one_in_line_overtakes_it() -> None:
    story = with_late_comer(in_turn(), 15)
    assert "overtaken" in violated(story)
    assert "overtaken" not in judge(story.events).failures("loss")


@pytest.mark.parametrize(
    "story",
    [
        in_turn(called_at=2.5, came_at=2.6),
        in_turn(came_at=2.5),
        in_turn("hasty"),
        in_turn().deliver(5, "q", "a"),
        in_turn().call(5, "p", "a"),
        in_turn().tell(1.4, "q", "told", name="lock.duplicate", res="lock:a", job="a", pub=""),
    ],
    ids=["called late", "came late", "left the line", "delivered again", "called twice", "told"],
)
def test_who_did_not_come_at_once_when_it_was_called_may_be_overtaken(story: Story) -> None:
    with_late_comer(story, 15)
    assert "overtaken" not in violated(story)
    found = judge(story.events)
    assert found.counts["judged for order"] == 0
    assert found.counts["overtaken after a fault"] == 1


def test_who_came_before_the_other_was_parked_does_not_overtake_it() -> None:
    story = in_turn().deliver(1.05, "r", "b")
    assert "overtaken" not in violated(with_late_comer(story, 15))


def test_who_supersedes_another_takes_its_place() -> None:
    story = in_turn()
    story.accept("n", "h", "newest").grant(2.6, "r", 15, "n").run(2.6, "r", 15, "h", "n")
    assert "overtaken" not in violated(story)


# ---------------------------------------------------------------------- deliveries


def test_deliveries_are_counted_apart_for_what_no_fault_touched() -> None:
    story = in_turn().accept("c", "h", "in_line").park(3, "p", "c").park(4, "p", "c")
    story.deliver(5, "q", "c", again=True).run(6, "q", 40, "h", "c")
    told = Report(Plan(1, "no-loss", "redis", 0), 1.0, judge([]).counts, judge(story.events))
    text = told.as_text()
    assert "2 parked: 2 ran" in text
    assert "deliveries of each 3.00 mean, 4 most" in text
    assert "of 1 that no fault touched 2.00 mean, 2 most" in text


def test_each_part_of_a_line_that_must_happen_is_asked_for() -> None:
    def unbitten(story: Story) -> set[str]:
        plan: Any = Plan(1, "no-loss", "redis", 0)
        return set(Report(plan, 1.0, judge([]).counts, judge(story.events)).unbitten)

    parts = {"parked", "superseded", "gave up"}
    assert parts <= unbitten(Story())
    story = gives_up(superseded().accept("h", "h", "hasty"), 9, "p", "h")
    story.tell(9, "p", "told", name="job.parked", res="lock:a", job="h", pub="")
    assert not parts & unbitten(story)
