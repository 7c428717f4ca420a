"""What the heartbeat keeps count of: leases being kept, when they go on, and renewals in flight."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from typing import Any

from giliran.interrupt import Gate
from giliran.lease import Lease
from giliran.steps import Call, Program, Sleep


@dataclass(slots=True, eq=False)
class Beat:
    """One lease being kept: its program and what it waits for."""

    lease: Lease
    gate: Gate
    program: Program[None]
    call: Call[Any] | None = None
    packed: bytes = b""
    packed_for: tuple[str, ...] = ()
    answer_by: float = 0.0
    script_unknown: bool = False
    over: bool = False


@dataclass(slots=True)
class Flight:
    """Renewals that were sent and not all answered, in order."""

    beats: list[Beat]
    answer_by: float
    answered: int = 0


@dataclass(slots=True)
class Timers:
    """When which beat wants to go on: due times in order, each with how early it may be."""

    heap: list[tuple[float, int, float, Beat]] = field(default_factory=list[Any])
    order: Any = field(default_factory=itertools.count)

    def push(self, sleep: Sleep, beat: Beat) -> None:
        """Wake the beat when the sleep is over."""
        heapq.heappush(self.heap, (sleep.until, next(self.order), sleep.early, beat))

    def due(self, instant: float) -> list[Beat]:
        """Take the beats whose time has come and, if any has, those that may be early."""
        if not self.heap or self.heap[0][0] > instant:
            return []
        beats: list[Beat] = []
        while self.heap and self.heap[0][0] - self.heap[0][2] <= instant:
            beats.append(heapq.heappop(self.heap)[3])
        return beats

    def next_at(self) -> float:
        """Answer when the next beat wants to go on, leaving out those that are over."""
        while self.heap and self.heap[0][3].over:
            heapq.heappop(self.heap)
        return self.heap[0][0] if self.heap else float("inf")
