"""The world notices what is broken on purpose; `make mutants` shows it for all."""

from __future__ import annotations

import pytest
from tests.sim.mutants import MUTANTS
from tests.sim.play import Play
from tests.sim.violation import Violation

ENOUGH = 60


@pytest.mark.parametrize(
    "name",
    [
        "release without a token check",
        "a second send of a claim does not refresh the TTL",
        "READONLY is taken for free",
        "no margin for clocks that drift",
        "contention counts as a recovery",
    ],
)
def test_the_world_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    for seed in range(ENOUGH):
        try:
            Play(seed).run()
        except Violation:
            return
    pytest.fail(f"{ENOUGH} seeds did not notice: {name}")


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_still_breaks_something(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails where the piece of a script that it replaces is not there any more."""
    MUTANTS[name](monkeypatch)
