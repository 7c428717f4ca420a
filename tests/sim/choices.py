"""Every decision of a world has a name: drawn from a seed, or read from a schedule.

A decision that nobody takes has a default, which is the dull one. So a schedule, the list of the
decisions that were not dull, may lose any of its entries and still be a schedule.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

V = TypeVar("V")


class Choices:
    """Answers each decision and notes it.

    Attributes:
        luck: what a seed's decisions are drawn from; of no effect when a schedule is replayed.
        taken: the decisions so far that were not the default, by name, as JSON values.
    """

    def __init__(self, seed: int, schedule: Mapping[str, Any] | None = None) -> None:
        self.luck = random.Random(seed)
        self.schedule = schedule
        self.taken: dict[str, Any] = {}
        self._times: dict[str, int] = {}

    def of(self, name: str, default: V, draw: Callable[[random.Random], V]) -> V:
        """Decide what has a name of its own or is asked again and again under the same name."""
        times = self._times.get(name, 0)
        self._times[name] = times + 1
        if times:
            name = f"{name} #{times + 1}"
        value: V = draw(self.luck) if self.schedule is None else self.schedule.get(name, default)
        if value != default:
            self.taken[name] = value
        return value

    def chance(self, name: str, rate: float) -> bool:
        """Decide whether something happens that mostly does not."""
        return self.of(name, default=False, draw=lambda luck: rate > 0 and luck.random() < rate)

    def rarely(
        self, who: str, step: int, rate: float, draw: Callable[[random.Random], V]
    ) -> V | None:
        """Decide whether something happens at one of very many steps."""
        if self.schedule is None:
            if not rate or self.luck.random() >= rate:
                return None
            value: V | None = draw(self.luck)
        else:
            value = self.schedule.get(f"{who} step {step}")
            if value is None:
                return None
        self.taken[f"{who} step {step}"] = value
        return value

    def unused(self) -> list[str]:
        """Name the entries of the schedule that no decision asked for."""
        return sorted((self.schedule or {}).keys() - self.taken.keys())
