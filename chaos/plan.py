"""How much of what a run must reach, and how often it happens."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

# Per three minutes.
REDIS_TARGETS = {
    "kill": 300,
    "freeze": 150,
    "partition or reset": 50,
    "server kill": 20,
    "job": 2000,
}
CELERY_TARGETS = {"kill": 15, "freeze": 40, "job": 500}

# What must stand in the history before a run may end: the faults have bitten.
BITTEN = (
    b'"kind": "fenced"',
    b'"name": "job.replayed"',
    b'"name": "lock.lost"',
    b'"name": "lock.duplicate"',
    b'"name": "job.parked"',
    b'"error": "GaveUp"',
    b'"value": null',
)

# Per second. The first four leave a tenth to spare.
REDIS_RATES = {
    "kill": 1.95,
    "freeze": 0.97,
    "blackhole": 0.1,
    "one-way": 0.1,
    "refuse": 0.06,
    "reset": 0.12,
    "server kill": 0.135,
    "drop reply": 1.5,
    "drop request": 0.2,
    "duplicate": 0.3,
    "script flush": 0.15,
    "client pause": 0.08,
    "client kill": 0.15,
}
CELERY_RATES = {
    "kill child": 0.12,
    "kill worker": 0.05,
    "freeze": 0.35,
    "blackhole": 0.06,
    "reset": 0.06,
    "drop reply": 0.6,
    "script flush": 0.1,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for on the command line.

    Attributes:
        minutes: what the targets are scaled to; the run may take twice as long.
        profile: "no-loss" or "loss": whether the server keeps what it acknowledged.
        queue: "redis" or "celery".
        seed: of faults and jobs; the interleaving is the machine's own.
    """

    minutes: float
    profile: str
    queue: str
    seed: int

    @property
    def longest(self) -> float:
        """Seconds after which faults end, reached or not."""
        return self.minutes * 120

    def targets(self) -> dict[str, int]:
        """What must have happened before the run may end."""
        whole = CELERY_TARGETS if self.queue == "celery" else REDIS_TARGETS
        return {name: max(1, round(count * self.minutes / 3)) for name, count in whole.items()}

    def missing(self, counts: Counter[str]) -> dict[str, str]:
        """Which targets are not reached, and how far they got."""
        return {
            name: f"{counts[name]} of {wanted}"
            for name, wanted in self.targets().items()
            if counts[name] < wanted
        }

    def progress(self, elapsed: float, counts: Counter[str]) -> str:
        """Say in one line how far a run has got."""
        parts = [f"{counts[name]}/{wanted} {name}s" for name, wanted in self.targets().items()]
        return f"{elapsed:4.0f} s: " + ", ".join(parts)

    def clockwork(self) -> Clockwork:
        """Make the schedule of faults."""
        rates = CELERY_RATES if self.queue == "celery" else REDIS_RATES
        return Clockwork(random.Random(self.seed), rates)


class Clockwork:
    """Draws when which fault is due: each by its own rate, independently of the others."""

    def __init__(self, luck: random.Random, rates: dict[str, float]) -> None:
        self.luck = luck
        self._rates = rates
        self._due = {name: luck.expovariate(rate) for name, rate in rates.items()}

    def due(self, elapsed: float) -> list[str]:
        """Take the faults whose time has come."""
        now = [name for name, at in self._due.items() if at <= elapsed]
        for name in now:
            self._due[name] = elapsed + self.luck.expovariate(self._rates[name])
        return now
