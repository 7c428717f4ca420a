"""Schedules: kept ones that show a bug on its mutant, and how a failing seed becomes one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sim.mutants import MUTANTS
from tests.sim.play import Play, timeline
from tests.sim.shrink import FOLDER, failure, kind, load, replay, save, shrink
from tests.sim.violation import Violation

KEPT = sorted(FOLDER.glob("*.json"))


def test_there_are_kept_schedules() -> None:
    assert len(KEPT) >= 5


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_kept_schedule_shows_its_bug_and_nothing_on_the_real_code(path: Path) -> None:
    mutant, said, schedule = load(path)
    with pytest.MonkeyPatch.context() as patch:
        MUTANTS[mutant](patch)
        assert kind(replay(schedule)) == kind(said), "it shows something else now"
    assert failure(schedule)[0] == ""


def test_a_schedule_that_does_not_apply_any_more_says_so() -> None:
    with pytest.raises(LookupError, match=r"no longer applies.*job 0\.0 d1 call 77"):
        replay({"job 0.0 d1 call 77": ["reply_lost", 0.001, 0.001, True]})


def test_a_failing_seed_shrinks_and_tells_its_story(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    play = Play(6)
    with monkeypatch.context() as patch:
        MUTANTS["release without a token check"](patch)
        with pytest.raises(Violation, match="S5"):
            play.run()
        small = shrink(play.choices.taken)
        assert len(small) * 5 < len(play.choices.taken)
        save(tmp_path / "s.json", "release without a token check", "S5: …", small)
        assert load(tmp_path / "s.json")[2] == small
        again = Play(0, small)
        with pytest.raises(Violation, match="S5"):
            again.run()
        assert "-> claim" in timeline(again)
        assert len(timeline(again).splitlines()) < 100
    assert failure(small)[0] == ""
