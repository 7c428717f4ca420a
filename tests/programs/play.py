"""The test plays Redis, the clock and luck for one program."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from giliran.errors import NotPublished, StoreMisconfigured, StoreUnavailable
from giliran.events import Event
from giliran.holder import Claimant
from giliran.lease import Lease
from giliran.steps import Call, Emit, Examine, Listen, Now, Program, Publish, Sleep, Step
from giliran.store import Ask, Memory
from giliran.timeouts import Timeouts

R = TypeVar("R")
START = 1000.0
TOKEN = "a" * 32
TIMES = Timeouts(30, 600, 3600)
HELD = [1_000_000, "held", "7", 1]
DONE = [1_000_000, "done", "", []]
RELEASED = [1_000_000, "released", "", []]
OTHER = "v=1;fence=7;acquired=1;ttl=1;max_hold=1;pub=p2;job=j2;type=t;route=q;host=h;pid=1"
RECORD = Memory("record", "i", "f", "retry", 6)
EVENT = Event("lock.acquired", "K")


def busy(remaining_ms: int = 10_000, answer: str = "busy", server_ms: int = 1_000_000) -> Any:
    return [server_ms, answer, remaining_ms, OTHER, 0, -1, 0]


def lost(reason: str = "expired") -> Any:
    return [1_000_000, "lost", reason, []]


def unreachable() -> StoreUnavailable:
    """No answer: it may have been applied."""
    return StoreUnavailable("unreachable", "no answer", ambiguous=True)


def refused(code: str) -> StoreUnavailable:
    """An error reply: it was not applied."""
    return StoreUnavailable(code, code, ambiguous=False)


def misconfigured(code: str = "NOPERM") -> StoreUnavailable:
    return StoreMisconfigured(code, code, ambiguous=False)


@dataclass(frozen=True, slots=True)
class Late:
    """An answer that takes its time, whatever the deadline says."""

    seconds: float
    answer: Any


def always(make: Callable[[], Any]) -> Iterator[Any]:
    return (make() for _ in itertools.count())


def ask(times: Timeouts = TIMES, memory: Memory = RECORD) -> Ask:
    return Ask(
        "K", TOKEN, times, Claimant("p1", "j1", "t", "q", "host=h;pid=1"), memory, ticket="p1"
    )


@dataclass(slots=True)
class Play:
    """Runs programs; what Redis answers is written down before.

    Attributes:
        clock: the local time.
        calls: what was asked: (when, script, arguments).
        naps: how long each sleep was to be.
        told: the events.
        published: what was published; nothing is taken while the broker `refuses`.
        examined: whose death was to be proven; whether they are `dead`.
    """

    clock: float = START
    calls: list[tuple[float, str, tuple[str, ...]]] = field(default_factory=list[Any])
    naps: list[float] = field(default_factory=list[float])
    told: list[Event] = field(default_factory=list[Event])
    published: list[Publish] = field(default_factory=list[Publish])
    refuses: bool = False
    dead: bool = False
    examined: list[str] = field(default_factory=list[str])
    limit: int = 20_000

    def now(self) -> float:
        return self.clock

    def lease(self, times: Timeouts = TIMES) -> Lease:
        """A lease claimed just now."""
        return Lease("K", TOKEN, 7, 1, times, self.clock, self.now)

    @property
    def names(self) -> list[str]:
        return [event.name for event in self.told]

    @property
    def asked(self) -> list[float]:
        """When each call was sent, from the start."""
        return [at - START for at, _, _ in self.calls]

    def run(self, program: Program[R], answers: Iterable[Any] = ()) -> R:
        """Run a program to its end; it must ask exactly as often as there are answers."""
        left = iter(answers)
        try:
            step: Step = next(program)
            for _ in range(self.limit):
                try:
                    answer = self._do(step, left)
                except (StoreUnavailable, NotPublished) as error:
                    step = program.throw(error)
                else:
                    step = program.send(answer)
        except StopIteration as stop:
            result: R = stop.value
            return result
        raise AssertionError("the program does not end")

    def _do(self, step: Step, answers: Iterator[Any]) -> Any:
        match step:
            case Now():
                return self.clock
            case Publish():
                self.published.append(step)
                if self.refuses:
                    raise NotPublished("refused")
                return None
            case Sleep(until) | Listen(_, until):
                self.naps.append(until - self.clock)
                self.clock = max(self.clock, until)
                return None
            case Emit(event):
                self.told.append(event)
                return None
            case Examine(told):
                self.examined.append(told)
                return self.dead
            case Call():
                return self._answer(step, answers)

    def _answer(self, call: Call[Any], answers: Iterator[Any]) -> Any:
        assert call.timeout > 0
        self.calls.append((self.clock, call.script.name, call.args))
        answer = next(answers)
        if isinstance(answer, Late):
            self.clock += answer.seconds
            answer = answer.answer
        elif isinstance(answer, StoreUnavailable) and answer.ambiguous:
            self.clock += call.timeout
        if isinstance(answer, StoreUnavailable):
            raise answer
        return call.decode(answer)
