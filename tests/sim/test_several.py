"""Jobs of several resources: a few seeds with the shipped code, and what is broken on purpose."""

from __future__ import annotations

import pytest
from tests.sim.several import Several
from tests.sim.several_mutants import SEVERAL_MUTANTS
from tests.sim.violation import Violation

SEEDS, ENOUGH = 40, 30
QUICK = [
    "in order: nothing goes back on busy",
    "in order: only the first is renewed",
    "of several, only the first is renewed",
    "of several, only the first is given back",
    "of several, only the first may be held",
]


def test_nothing_impossible_happens() -> None:
    plays = [Several(seed).run() for seed in range(SEEDS)]
    assert {play.cluster for play in plays} == {False, True}
    assert sum((play.seen()["several: job.ran"] for play in plays), 0) > SEEDS


def test_a_seed_decides_everything() -> None:
    def told(seed: int) -> object:
        play = Several(seed).run()
        return play.world.steps, play.world.time, play.seen()

    assert told(7) == told(7) != told(8)


@pytest.mark.parametrize("name", QUICK)
def test_the_world_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    SEVERAL_MUTANTS[name](monkeypatch)
    with pytest.raises(Violation):
        for seed in range(ENOUGH):
            Several(seed).run()


@pytest.mark.parametrize("name", SEVERAL_MUTANTS)
def test_every_mutant_still_breaks_something(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails where the piece of a script that it replaces is not there any more."""
    SEVERAL_MUTANTS[name](monkeypatch)
