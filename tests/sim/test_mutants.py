"""The world must notice what is broken on purpose, within a bounded number of seeds."""

from __future__ import annotations

import pytest
from tests.sim.mutants import MUTANTS
from tests.sim.oracle import Violation
from tests.sim.work import play

ENOUGH = 600


@pytest.mark.parametrize("name", MUTANTS)
def test_the_world_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    for seed in range(ENOUGH):
        try:
            play(seed)
        except Violation as noticed:
            print(f"seed {seed}: {str(noticed).splitlines()[0]}")
            return
    pytest.fail(f"{ENOUGH} seeds did not notice: {name}")


def test_a_failing_seed_tells_its_number_and_its_history(monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS["claim without a TTL"](monkeypatch)
    with pytest.raises(Violation, match=r"(?s)seed 3: .*S10.*Rates\(.*-> claim .* within") as told:
        play(3)
    assert 3 <= len(str(told.value).splitlines()) < 200
