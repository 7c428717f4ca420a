"""What was decided about a call: its rules beforehand, its outcome, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from giliran.jobs import Carried
from giliran.lease import Lease
from giliran.policies import Policy
from giliran.results import Codec


@dataclass(frozen=True, slots=True)
class Rules:
    """What was decided at decoration about contention, losses and results.

    Attributes:
        policy: what a contended job does.
        recoveries: how often a job is put back after a lost lease.
        codec: writes and rebuilds results.
        remember: exception types that are recorded and replayed.
    """

    policy: Policy
    recoveries: int
    codec: Codec
    remember: tuple[type[Exception], ...]


@dataclass(frozen=True, slots=True)
class Run:
    """The lease is ours: run the body."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Return:
    """The call ends with a value."""

    value: object


@dataclass(frozen=True, slots=True)
class Raise:
    """The call ends with an error."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class PutBack:
    """The job goes back to its queue; it will come again after `delay` seconds."""

    delay: float
    carried: Carried


@dataclass(frozen=True, slots=True)
class Parked:
    """The job waits in Redis until it is called; this delivery of it is over."""


Ended: TypeAlias = Return | Raise | PutBack | Parked


@dataclass(frozen=True, slots=True)
class Returned:
    """The body returned."""

    value: object


@dataclass(frozen=True, slots=True)
class Raised:
    """The body raised."""

    error: BaseException
