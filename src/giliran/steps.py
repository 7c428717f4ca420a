"""What a program may ask of the world: a closed list of steps.

A program is a generator that yields steps and does no I/O, reads no clock and draws no luck by
itself. `drive` runs it with threads or asyncio, the heartbeat runs many at once, and the tests
run it in virtual time. `call` and `now` keep the types of what comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from giliran.events import Event

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua file: one state change in Redis."""

    name: str
    text: str
    sha: str


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """Run a script; answered with what `decode` makes of the reply.

    `timeout` is how long the answer is of any use, in seconds. The driver raises
    `StoreUnavailable` into the program when there is no answer by then.
    """

    script: Script
    keys: tuple[str, ...]
    args: tuple[str, ...]
    decode: Callable[[Any], T]
    timeout: float = 2.0


@dataclass(frozen=True, slots=True)
class Sleep:
    """Go on at `until` on the local clock, or up to `early` seconds before if that saves a wake."""

    until: float
    early: float = 0.0


@dataclass(frozen=True, slots=True)
class Listen:
    """Wait for the bell `key` to ring, or until `until` on the local clock.

    A hint that somebody was called: answered with whether it rang, and never relied upon.
    """

    key: str
    until: float


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish a parked job again, by the queue that `route` names.

    The driver raises `NotPublished` into the program when the broker did not take it. `rank` is
    its place in line, `verdict` how it is to end: "" to run.
    """

    route: str
    payload: str
    rank: int
    verdict: str


@dataclass(frozen=True, slots=True)
class Examine:
    """Look whether the process that a lock value tells of is proven dead; answered with a bool."""

    told: str


@dataclass(frozen=True, slots=True)
class Now:
    """Answered with the local clock: seconds that go on while the machine is suspended."""


@dataclass(frozen=True, slots=True)
class Emit:
    """Tell the listeners what happened."""

    event: Event


Step: TypeAlias = Call[Any] | Sleep | Listen | Publish | Examine | Now | Emit
Program: TypeAlias = Generator[Step, Any, R]


def now() -> Program[float]:
    """Read the local clock."""
    instant: float = yield Now()
    return instant


def call(request: Call[T], timeout: float) -> Program[T]:
    """Run `request`; its answer is of no use after `timeout` seconds."""
    answer: T = yield replace(request, timeout=timeout)
    return answer
