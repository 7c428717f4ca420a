"""`make sim` and `make mutants`: many seeds on all cores, with the figures they came to."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.sim.clocked import CannotClock, clocked_server
from tests.sim.coverage import ENOUGH_SEEDS, missing, seen, table
from tests.sim.histories import differences, history
from tests.sim.mutants import MUTANTS
from tests.sim.play import Play, timeline
from tests.sim.several import Several
from tests.sim.several_mutants import SEVERAL_MUTANTS
from tests.sim.shrink import FOLDER, failure, load, save, shrink
from tests.sim.violation import Violation

if TYPE_CHECKING:
    from tests.sim.shrink import Schedule

CHUNK, HISTORIES, MUTANT_SEEDS = 20, 200, 500


@dataclass(slots=True)
class Result:
    """What some seeds came to."""

    seeds: int = 0
    steps: int = 0
    fewest: int = sys.maxsize
    slowest: float = 0.0
    counts: Counter[str] = field(default_factory=Counter[str])
    failures: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    def add(self, other: Result) -> None:
        """Add what other seeds came to."""
        self.seeds += other.seeds
        self.steps += other.steps
        self.fewest = min(self.fewest, other.fewest)
        self.slowest = max(self.slowest, other.slowest)
        self.counts += other.counts
        self.failures += other.failures


def play_seeds(seeds: Iterable[int]) -> Result:
    """Play seeds one after the other."""
    result = Result()
    for seed in seeds:
        play = Play(seed)
        try:
            play.run()
        except Violation as noticed:
            result.failures.append((seed, str(noticed)))
        else:
            result.fewest = min(result.fewest, play.world.steps)
        result.seeds += 1
        result.steps += play.world.steps
        result.slowest = max(result.slowest, play.slowest)
        result.counts += seen(play)
        several = Several(seed)
        try:
            several.run()
        except Violation as noticed:
            result.failures.append((seed, f"several: {noticed}"))
        result.steps += several.world.steps
        result.slowest = max(result.slowest, several.slowest)
        result.counts += several.seen()
    return result


def replay_histories(seeds: range) -> tuple[int, int, list[str]]:
    """Replay histories on a server of its own; answers histories, lines and differences."""
    lines, found = 0, list[str]()
    with clocked_server() as clocked:
        for seed in seeds:
            log = history(seed).world.server.log.lines
            lines += len(log)
            found += [f"seed {seed}: {one}" for one in differences(clocked, log)]
    return len(seeds), lines, found


def hunt(name: str) -> tuple[str, int | None, str]:
    """Look for the first seed that notices a mutant; 0 for a kept schedule, which is quicker."""
    with pytest.MonkeyPatch.context() as patch:
        if name in SEVERAL_MUTANTS:
            return name, *_hunt_several(name, patch)
        MUTANTS[name](patch)
        for mutant, _, schedule in map(load, FOLDER.glob("*.json")):
            if mutant == name and (said := failure(schedule)[0]):
                return name, 0, said
        for seed in range(MUTANT_SEEDS):
            try:
                Play(seed).run()
            except Violation as noticed:
                return name, seed + 1, str(noticed)
    return name, None, ""


def _hunt_several(name: str, patch: pytest.MonkeyPatch) -> tuple[int | None, str]:
    SEVERAL_MUTANTS[name](patch)
    for seed in range(MUTANT_SEEDS):
        try:
            Several(seed).run()
        except Violation as noticed:
            return seed + 1, str(noticed)
    return None, ""


# ------------------------------------------------------------------ what make calls


def simulate(seeds: int, jobs: int) -> int:
    """Play seeds, replay histories, print the figures; 1 if anything is wrong."""
    began, total = time.monotonic(), Result()
    parts = [range(n, min(n + CHUNK, seeds)) for n in range(0, seeds, CHUNK)]
    with ProcessPoolExecutor(jobs) as pool:
        for part in pool.map(play_seeds, parts):
            total.add(part)
        took = time.monotonic() - began
        print(table(total.counts))
        print(
            f"{total.seeds:,} seeds, {total.steps:,} steps (at least {total.fewest:,} each) in "
            f"{took:.0f} s; the slowest was quiet after {total.slowest:.0%} of its bound"
        )
        for seed, said in sorted(total.failures)[:10]:
            print(f"FAILED seed {seed}: {said}\n  replay and shrink: make sim SEED={seed}")
        unseen = missing(total.counts) if seeds >= ENOUGH_SEEDS else []
        for name in unseen:
            print(f"FAILED never seen: {name}")
        differ = _histories(pool, min(seeds, HISTORIES), jobs)
    return int(bool(total.failures or unseen or differ))


def _histories(pool: ProcessPoolExecutor, count: int, jobs: int) -> bool:
    share = -(-count // jobs)
    parts = [range(n, min(n + share, count)) for n in range(0, count, share)]
    try:
        answers = list(pool.map(replay_histories, parts))
    except CannotClock as error:
        print(f"no histories replayed: {error}")
        return bool(os.environ.get("CI"))
    found = [one for _, _, some in answers for one in some]
    print(
        f"{sum(n for n, _, _ in answers)} histories of {sum(n for _, n, _ in answers):,} calls "
        f"replayed on a real server: {len(found)} differences"
    )
    for one in found[:10]:
        print(f"FAILED {one}")
    return bool(found)


def explain(seed: int) -> int:
    """Play one seed; if it fails, show its history, and shrink it to a schedule."""
    play = Play(seed)
    try:
        play.run()
    except Violation as noticed:
        print(timeline(play), f"\nFAILED seed {seed}: {noticed}\nshrinking …", flush=True)
        small: Schedule = shrink(play.choices.taken)
        print(f"{len(play.choices.taken)} decisions shrunk to {len(small)}:")
        print("\n".join(f"  {name}: {value}" for name, value in small.items()))
        again = Play(0, small)
        try:
            again.run()
        except Violation as same:
            print(timeline(again), f"\n{same}")
            path = Path(tempfile.gettempdir()) / f"seed-{seed}.json"
            save(path, "", str(same), small)
            print(f"kept as {path}: to guard it, move it to tests/sim/schedules")
        return 1
    print(f"seed {seed}: {play.world.steps:,} steps in {play.waves} waves, nothing impossible")
    several = Several(seed)
    try:
        several.run()
    except Violation as noticed:
        print(timeline(several), f"\nFAILED seed {seed}, several: {noticed}")
        return 1
    return 0


def mutants(jobs: int, only: str) -> int:
    """Hunt all mutants; 1 if one survives."""
    began, survivors = time.monotonic(), 0
    names = [name for name in (*MUTANTS, *SEVERAL_MUTANTS) if only in name]
    with ProcessPoolExecutor(jobs) as pool:
        for name, seed, said in pool.map(hunt, names):
            survivors += seed is None
            needed = "SURVIVED" if seed is None else f"{seed} seeds" if seed else "schedule"
            print(f"{name:54} {needed:>10}  {said[:70]}", flush=True)
    took = time.monotonic() - began
    print(f"{len(names) - survivors} of {len(names)} mutants noticed, in {took:.0f} s")
    return int(survivors > 0)


def main() -> int:
    """Read the arguments and do what they say."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--mutants", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    wanted = parser.parse_args()
    if wanted.mutants:
        return mutants(wanted.jobs, wanted.only)
    if wanted.seed is not None:
        return explain(wanted.seed)
    return simulate(wanted.seeds, wanted.jobs)


if __name__ == "__main__":
    sys.exit(main())
