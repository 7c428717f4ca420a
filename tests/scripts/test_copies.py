"""Copies of parked jobs that come late: short stories on the scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.scripts.backends import DUE, LINE, PARKED
from tests.scripts.resource import Resource

from giliran.line import Place, Turn
from giliran.store import Busy, Done, Held

if TYPE_CHECKING:
    from giliran.store import Finished


def placed(answer: tuple[str, object]) -> Place:
    assert isinstance(answer[1], Place)
    return answer[1]


def called(finished: Finished) -> Turn:
    assert finished.called is not None
    return finished.called


def test_a_copy_of_a_superseded_job_does_not_displace_the_newest() -> None:
    story = Resource(call_ms=5)
    holder, _ = story.claim("h")
    story.park("old", group="g")
    parker, new = story.park("new", group="g")
    assert isinstance(new, Place)
    assert new.superseded is not None
    assert new.superseded.ticket == "old"
    # Before a broker has it, with its verdict.
    assert placed(story.park("old", group="g")).superseded is None
    story.offer("old", parker)
    # After: it need not ask for a place.
    _, answer = story.claim("old")
    assert isinstance(answer, Done)
    assert answer.state == "superseded"
    assert called(story.finish(holder, "h")).ticket == "new"


def test_a_job_that_comes_late_has_its_old_rank_though_a_copy_stands_further_back() -> None:
    story = Resource(call_ms=5)
    holder, _ = story.claim("h")
    first = placed(story.park("a"))
    story.park("b")
    assert called(story.finish(holder, "h")).ticket == "a"
    story.offer("a", holder)  # Its message lies in the queue for long.
    story.time_passes(6_000)
    story.sweep()
    story.claim("b")
    story.park("c")
    story.park("a")  # A copy of it that knows nothing of its rank.
    back = placed(story.park("a", first.rank))
    assert (back.position, back.rank) == (0, first.rank)


def test_lost_answers_do_not_end_a_healthy_job() -> None:
    story = Resource(call_ms=5)
    holder, _ = story.claim("h")
    story.park("a")
    story.finish(holder, "h")
    for _ in range(20):
        story.time_passes(5_001)
        _, swept = story.sweep()
        assert swept.called is not None
        assert (swept.called.kind, swept.called.ticket) == ("job", "a")


def test_jobs_set_aside_do_not_fill_the_line() -> None:
    story = Resource(call_ms=5)
    caller, _ = story.claim("h")
    story.park("a")
    story.finish(caller, "h")
    for answer in ["noted"] * 4 + ["dead"]:
        assert story.offer("a", caller, "refused") == answer
        story.time_passes(5_001)
        caller, swept = story.sweep()
        assert bool(swept.left) == (answer == "noted")
    story.claim("h2")
    placed(story.park("b", most=1))
    assert isinstance(story.claim("b")[1], Busy)


def test_jobs_run_in_order_though_their_queue_is_slower_than_a_reservation() -> None:
    """Each copy needs 8 s, longer than the resource is reserved for it: they run all the same."""
    story = Resource()
    holder, _ = story.claim("h")
    ranks = {job: placed(story.park(job)).rank for job in ("t1", "t2", "t3")}
    copies: list[tuple[int, str]] = []

    def publish(turn: Turn | None, token: str, second: int) -> None:
        if turn is not None:
            assert turn.kind == "job"
            copies.append((second + 8, turn.ticket))
            assert story.offer(turn.ticket, token) == "noted"

    publish(called(story.finish(holder, "h")), holder, 0)
    ran: list[str] = []
    for second in range(100):
        for due, job in [copy for copy in copies if copy[0] == second]:
            copies.remove((due, job))
            token, answer = story.claim(job, ranks[job])
            if isinstance(answer, Held):
                ran.append(job)
                publish(story.finish(token, job).called, token, second)
            else:
                placed(story.park(job, ranks[job]))
        token, swept = story.sweep()
        publish(swept.called, token, second)
        story.time_passes(1_000)
    assert ran == ["t1", "t2", "t3"]
    assert {"K", LINE, PARKED, DUE}.isdisjoint(story.redis.values)
