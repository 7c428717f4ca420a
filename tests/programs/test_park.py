"""Jobs that are parked, called and published again, and the holders that sweeps examine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.programs.play import EVENT, OTHER, TOKEN, Late, Play, ask, busy
from tests.programs.stage import Delivered, Stage, put_back, raised

from giliran.errors import Contended, NotPublished, StoreMisconfigured
from giliran.handoff import Caller, park, publish, sweep, sweep_line
from giliran.jobs import Carried
from giliran.line import Place, Shelved, Terms, Turn
from giliran.policies import fail, hand_off
from giliran.steps import Publish

if TYPE_CHECKING:
    from collections.abc import Iterator

    from giliran.steps import Step

MS = 1_000_000
MARKED = [MS]
PLACED = [MS, "parked", 0, "5"]
T1 = Turn("job", "t1", 5, "", "a", "P1")
TOLD_T1 = ["job", "t1", "5", "", "a", "P1"]
CALLER = Caller("K", TOKEN, ("a",), EVENT)


@dataclass
class Away(Play):
    """The broker is away."""

    def _do(self, step: Step, answers: Iterator[Any]) -> Any:
        if isinstance(step, Publish):
            raise NotPublished("away", outage=True)
        return super()._do(step, answers)


def scripts(play: Play) -> list[str]:
    return [name for _, name, _ in play.calls]


def results(play: Play) -> list[tuple[str, str, str]]:
    return [(event.name, event.result, event.reason) for event in play.told]


# ---------------------------------------------------------------------- parking


@pytest.mark.parametrize(
    ("answers", "marks"),
    [
        ([MARKED, PLACED], 1),
        ([MARKED, Late(30.0, PLACED)], 1),
        ([MARKED, Late(30.1, PLACED), MARKED], 2),
        ([Late(30.1, MARKED), PLACED, MARKED], 2),
    ],
)
def test_a_parker_that_stood_still_marks_the_line_again(answers: list[Any], marks: int) -> None:
    """Its mark may have been cleared before there was anything in the line."""
    play = Play()
    place = play.run(park(ask(), Shelved("a", "P1"), Terms(MS, 100, 3_600.0), 5.0), answers)
    assert place == Place(MS, 0, 5, None)
    assert scripts(play) == ["lines", "park", "lines"][: marks + 1]
    assert {args for _, name, args in play.calls if name == "lines"} == {("mark", "K", "")}


def test_a_job_for_which_the_resource_is_always_free_when_it_is_parked_is_put_back() -> None:
    carried = Carried(contentions=2, contended_since_ms=MS - 5_000)
    stage = Stage(policy=hand_off(), job=Delivered(carried, shelved=Shelved("a", "P1")))
    back = put_back(stage.open(*[busy(), MARKED, [MS, "free"]] * 3))
    assert back.carried == carried
    assert back.delay == 2.0
    assert stage.names == ["lock.contended"] * 3 + ["job.requeued"]
    assert results(stage)[-1] == ("job.requeued", "requeued", "contended")
    assert stage.told[-1].fields["delay"] == back.delay


def test_it_is_put_back_for_no_longer_than_its_queue_hides_it() -> None:
    job = Delivered(shelved=Shelved("a", "P1"), visibility=3.0)
    stage = Stage(policy=hand_off(), job=job)
    back = put_back(stage.open(*[busy(), MARKED, [MS, "free"]] * 3))
    assert back.delay == 1.0


def test_a_plain_call_that_meets_one_dead_holder_after_another_is_contended() -> None:
    stage = Stage(policy=fail(), job=None, proven=True, dead=True)
    error = raised(stage.open(*[busy(), [MS, "reclaimed", []]] * 3))
    assert isinstance(error, Contended)


# ---------------------------------------------------------------------- publishing


def test_a_job_refused_once_too_often_is_told_as_dead() -> None:
    play = Play(refuses=True)
    play.run(publish(CALLER, T1), [[MS, "dead"]])
    assert [args for _, _, args in play.calls] == [("t1", TOKEN, "refused")]
    assert results(play) == [("job.called", "refused", "refused"), ("job.dead", "dead", "refused")]
    assert {event.fields["publication"] for event in play.told} == {"t1"}


def test_a_job_that_is_refused_stays_parked() -> None:
    play = Play(refuses=True)
    play.run(publish(CALLER, T1), [[MS, "noted"]])
    assert play.names == ["job.called"]


def test_a_broker_that_is_away_is_not_the_fault_of_the_job() -> None:
    play = Away()
    play.run(publish(CALLER, T1), [[MS, "noted"]])
    assert [args for _, _, args in play.calls] == [("t1", TOKEN, "unreachable")]
    assert results(play) == [("job.called", "unreachable", "away")]


def test_a_job_that_a_sweep_has_set_aside_is_only_told() -> None:
    play = Play()
    play.run(publish(CALLER, Turn("dead", "t1")), [])
    assert play.published == []
    assert results(play) == [("job.dead", "dead", "unanswered")]


# ---------------------------------------------------------------------- sweeping


def sweeping(play: Play, *answers: Any, proven: bool = True) -> None:
    """Sweep a line in which one waits behind a holder."""
    caller = Caller("K", TOKEN, ("a",), EVENT, proven)
    play.run(sweep_line(caller), [[MS, 2, OTHER, []], *answers])


def test_a_sweep_ends_the_lease_of_a_dead_holder_and_publishes_who_is_next() -> None:
    play = Play(dead=True)
    sweeping(play, [MS, "reclaimed", TOLD_T1], [MS, "noted"])
    assert play.examined == [OTHER]
    assert scripts(play) == ["sweep", "reclaim", "offer"]
    assert play.calls[1][2] == (TOKEN, OTHER, "|a|")
    assert play.names == ["lock.reclaimed", "job.called"]
    assert play.told[0].lock_owner == "t j2 on h:1"


def test_a_sweep_tells_nothing_of_a_lease_that_another_ended_before() -> None:
    play = Play(dead=True)
    sweeping(play, [MS, "changed", []])
    assert play.names == []


def test_a_sweep_leaves_a_holder_that_may_live() -> None:
    play = Play(dead=False)
    sweeping(play)
    assert (play.examined, scripts(play)) == ([OTHER], ["sweep"])


def test_a_sweep_examines_nobody_where_that_is_not_wanted() -> None:
    play = Play(dead=True)
    sweeping(play, proven=False)
    assert (play.examined, scripts(play)) == ([], ["sweep"])


def test_a_broken_line_does_not_keep_sweeps_from_the_others() -> None:
    play = Play()
    broken = StoreMisconfigured("WRONGTYPE", "it is no line", ambiguous=False)
    empty = [MS, 0, "", []]
    play.run(sweep(("a",), TOKEN, proven=False), [[MS, "K", "L"], broken, empty, [MS]])
    assert scripts(play) == ["lines", "sweep", "sweep", "lines"]
    assert results(play) == [("lock.misused", "unavailable", "WRONGTYPE")]
