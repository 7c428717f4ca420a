"""The world with the shipped code: SEEDS=how many, SEED=one to replay (`make sim`)."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.sim.work import Work, play

SEED = os.environ.get("SEED", "")
SEEDS = int(os.environ.get("SEEDS") or 200)
CHUNKS = 8


def seeds_of(chunk: int) -> range:
    return range(int(SEED), int(SEED) + 1) if SEED else range(chunk, SEEDS, CHUNKS)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chunk", [0] if SEED else range(CHUNKS))
def test_nothing_impossible_happens(chunk: int) -> None:
    worlds = [play(seed) for seed in seeds_of(chunk)]
    assert all(work.world.steps for work in worlds)


def test_a_seed_decides_everything() -> None:
    def told(seed: int) -> object:
        work = play(seed)
        return work.world.steps, work.world.time, work.outcomes, work.world.oracle.fences

    assert told(7) == told(7) != told(8)


def test_every_fault_and_every_outcome_occurs() -> None:
    seen: Counter[str] = Counter()
    for seed in range(150):
        work: Work = play(seed)
        seen.update(work.world.happened)
        for outcomes in work.outcomes.values():
            seen.update(outcomes)
    missing = [
        name
        for name in (
            "request_lost", "reply_lost", "late_reply", "late_request", "doubled", "refused",
            "pause", "crash", "evict", "flush", "step_back", "job.ran", "job.failed",
            "job.replayed",
            "job.skipped", "job.gave_up", "job.refused", "job.requeued", "lock.duplicate",
            "lock.lost", "lock.renew_failed", "record.unrecorded", "store.unavailable",
        )
        if not seen[name]
    ]  # fmt: skip
    assert missing == []
