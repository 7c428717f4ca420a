"""A few seeds of the world with the shipped code; `make sim` plays thousands."""

from __future__ import annotations

import os

import pytest
from tests.sim.clocked import CannotClock, clocked_server
from tests.sim.histories import differences, history
from tests.sim.plan import JOBS
from tests.sim.play import STEPS, Play, timeline

SEEDS, CHUNKS = 24, 4


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_nothing_impossible_happens(chunk: int) -> None:
    for seed in range(chunk, SEEDS, CHUNKS):
        play = Play(seed).run()
        assert play.world.steps >= STEPS
        assert len(play.world.processes) >= 3


def test_a_seed_decides_everything() -> None:
    def told(seed: int) -> object:
        play = Play(seed).run(steps=1)
        return play.world.steps, play.world.time, play.work.broker.outcomes, play.choices.taken

    assert told(7) == told(7) != told(8)


def test_what_a_seed_decided_is_a_schedule_that_does_the_same() -> None:
    play = Play(11).run(steps=1)
    again = Play(0, play.choices.taken).run()
    assert again.choices.unused() == []
    assert again.world.happened == play.world.happened
    assert timeline(again) == timeline(play)


def test_without_faults_nothing_is_ever_lost_or_put_back_for_an_outage() -> None:
    jobs = {
        f"job 0.{n}": {
            "task": 0, "at": n / 10, "kind": "delivery", "name": 0, "fingerprint": "f",
            "after_crash": "retry", "length": 0.3,
        }
        for n in range(JOBS)
    }  # fmt: skip
    play = Play(0, jobs).run()
    assert play.world.happened["job.ran"] == JOBS
    assert not {"lock.lost", "store.unavailable", "lock.duplicate"} & play.world.happened.keys()


def test_a_server_behaves_like_the_fake() -> None:
    try:
        with clocked_server() as clocked:
            for seed in range(6):
                assert differences(clocked, history(seed).world.server.log.lines) == []
    except CannotClock as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
