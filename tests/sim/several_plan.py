"""What a world of several resources is made of: its faults, its jobs and what they want."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.sim.plan import MOST, NONE, Message, Rates, Task

from giliran.guard import lock_keys
from giliran.policies import Policy, fail, hand_off, requeue, skip, wait
from giliran.store import Kind, Memory
from giliran.timeouts import Timeouts

JOBS, FAULTY, BUDGET, TTL, RECOVERIES = 40, 40.0, 60.0, 3.0, 5
# Budget and TTL of a job that meets its last fault at the end of them, and what is under way.
BOUND = BUDGET + 2 * TTL + 80.0
FAULTS = (
    "request_lost", "reply_lost", "late_reply", "late_request", "doubled", "slow", "cut",
    "restart", "loading", "readonly", "pause", "crash",
)  # fmt: skip
SEEN = (
    "several: held", "several: busy", "several: queued", "several: duplicate",
    "several: sent again, and held already", "several: in order", "several: given back",
    "several: done", "several: a lock was broken", "several: lock.lost", "several: reclaimed",
    "several: job.ran", "several: job.requeued", "several: job.skipped", "several: job.failed",
    "several: job.gave_up", "several: waited",
)  # fmt: skip


def draw_rates(luck: random.Random) -> Rates:
    """Draw how likely each fault is; about half of them do not happen."""
    rates = replace(NONE)
    for name in FAULTS:
        setattr(rates, name, getattr(MOST, name) * (luck.random() < 0.5) * luck.random() ** 2)
    return rates


def draw_job(
    luck: random.Random, name: str, resources: list[str]
) -> tuple[float, tuple[str, ...], Message]:
    """Draw when a job comes, its lock keys, and its message; 30 % want several resources."""
    several = luck.random() < 0.3
    wanted = luck.sample(resources, luck.randint(2, 3) if several else 1)
    policies: list[Policy] = [
        requeue(base=0.5, cap=4, give_up_after=BUDGET),
        requeue(base=0.5, cap=2, give_up_after=3),
        wait(luck.choice([0.5, 5.0, 30.0])),
        wait(30.0, then="skip"),
        skip(),
        fail(),
    ]
    if not several:  # Whoever wants several is parked for none.
        policies.append(hand_off(give_up_after=BUDGET))
    kinds: list[Kind] = ["", "record", "delivery"]
    kind = luck.choice(kinds)
    keys = tuple(lock_keys(wanted, None))
    times = Timeouts(luck.choice([1.0, TTL]), 60.0, 3600.0)
    task = Task(keys[0], times, luck.choice(policies), RECOVERIES, False, None, None)
    memory = Memory(kind, name, attempts=RECOVERIES + 1) if kind else Memory()
    length = 0.01 * 400 ** luck.random()
    return luck.uniform(0, FAULTY), keys, Message(task, memory, name, length)
