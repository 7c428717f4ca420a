"""What a contended job does: one policy, chosen by one argument, each with an end.

`requeue` puts the job back for later, `hand_off` parks it in line, `coalesce` parks the newest,
`wait` keeps its worker slot, `skip` drops it, `fail` takes the framework's failure path. Only
`fail` spends a failure attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from giliran.timeouts import Seconds, seconds

End: TypeAlias = Literal["fail", "skip"]


@dataclass(frozen=True, slots=True)
class Requeue:
    """Put back with growing, fully jittered delays. Made by `requeue`."""

    base: float
    cap: float
    give_up_after: float
    then: End

    def delay(self, contentions: int, luck: float, longest: float) -> float:
        """Draw the next delay.

        Args:
            contentions: how often this job was put back before.
            luck: a random number from 0 to 1.
            longest: what the queue can bear, in seconds.
        """
        ceiling = min(self.cap, self.base * 2.0 ** min(contentions, 30), longest)
        return max(min(self.base, ceiling) / 4, luck * ceiling)


@dataclass(frozen=True, slots=True)
class HandOff:
    """Park until called, in order of first arrival. Made by `hand_off`."""

    give_up_after: float
    then: End
    most: int
    durable: bool


@dataclass(frozen=True, slots=True)
class Coalesce:
    """Park at most one, the newest. Made by `coalesce`."""

    give_up_after: float
    then: End
    durable: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """Keep the worker slot and try again. Made by `wait`."""

    budget: float
    then: End


@dataclass(frozen=True, slots=True)
class Skip:
    """Drop the job. Made by `skip`."""

    returns: object


@dataclass(frozen=True, slots=True)
class Fail:
    """Raise `Contended`. Made by `fail`."""


Policy: TypeAlias = Requeue | HandOff | Coalesce | Wait | Skip | Fail


def requeue(
    *,
    base: Seconds = 1.0,
    cap: Seconds = 60.0,
    give_up_after: Seconds = 900.0,
    then: End = "fail",
) -> Requeue:
    """Put a contended job back into its queue; it spends no attempt and loses nothing.

    The n-th delay is drawn evenly from 0 to `base * 2**n`, at most `cap`, and never near the
    queue's visibility timeout. Time is counted by the server from the first contention.

    Args:
        base: the first ceiling of the delay, in seconds or as a timedelta.
        cap: the largest delay.
        give_up_after: how long one job may be put back, from its first contention.
        then: "fail" raises `GaveUp`, "skip" returns None.

    Raises:
        ValueError: if the durations do not fit each other.
    """
    policy = Requeue(
        seconds(base, "base"), seconds(cap, "cap"), seconds(give_up_after, "give_up_after"), then
    )
    if not 0.05 <= policy.base <= policy.cap <= policy.give_up_after:
        raise ValueError(
            f"requeue(base={policy.base:g}, cap={policy.cap:g}, "
            f"give_up_after={policy.give_up_after:g}) must rise from at least 0.05 s: the first "
            "delay, the largest delay, the time after which the job gives up"
        )
    _check_end(then)
    return policy


def hand_off(
    *,
    give_up_after: Seconds = 900.0,
    then: End = "fail",
    most: int = 10_000,
    durable: bool = True,
) -> HandOff:
    """Park a contended job in Redis and give it its turn, in order of first arrival.

    While it is parked the job is neither in the queue nor in a worker, and costs nothing. When the
    resource is released it is published again: two deliveries for each job, however many wait. It
    spends no attempt. On a plain call, without a queue, `Contended` is raised.

    Args:
        give_up_after: how long one job may be parked, from its first contention, in seconds or as
            a timedelta.
        then: "fail" raises `GaveUp`, "skip" returns None.
        most: how many may be parked on one resource; one more raises `GaveUp`.
        durable: refuse a Redis without an append-only file: a parked job is as durable as that
            server. False accepts it by name.

    Raises:
        ValueError: if a number is not above 0.
    """
    policy = HandOff(seconds(give_up_after, "give_up_after"), then, most, durable)
    if policy.give_up_after <= 0 or policy.most < 1:
        raise ValueError("hand_off needs give_up_after above 0 s, and most of at least 1")
    _check_end(then)
    return policy


def coalesce(
    *, give_up_after: Seconds = 900.0, then: End = "fail", durable: bool = True
) -> Coalesce:
    """Let at most one job wait beside the one that runs: the newest, which has the last word.

    A job that waited and is replaced returns None. For work that brings something up to date,
    where running once more at the end does for all. Waiting is as for `hand_off`.

    Args:
        give_up_after: how long one job may be parked, from its first contention.
        then: "fail" raises `GaveUp`, "skip" returns None.
        durable: as for `hand_off`.

    Raises:
        ValueError: if `give_up_after` is not above 0.
    """
    policy = Coalesce(seconds(give_up_after, "give_up_after"), then, durable)
    if policy.give_up_after <= 0:
        raise ValueError("coalesce needs give_up_after above 0 s")
    _check_end(then)
    return policy


def wait(budget: Seconds, *, then: End = "fail") -> Wait:
    """Wait in the worker slot for at most `budget` seconds, with a last try at the end of it.

    Args:
        budget: the acquire timeout, in seconds or as a timedelta; more than 0.
        then: "fail" raises `Contended`, "skip" returns None.

    Raises:
        ValueError: if the budget is not above 0; `fail()` does not wait.
    """
    policy = Wait(seconds(budget, "wait"), then)
    if policy.budget <= 0:
        raise ValueError("wait needs a budget above 0 s; use fail() or skip() to not wait at all")
    _check_end(then)
    return policy


def skip(returns: object = None) -> Skip:
    """Drop a contended job: its task returns `returns`, so that chains and chords end.

    On a plain call, without a queue, `Skipped` is raised instead.
    """
    return Skip(returns)


def fail() -> Fail:
    """Raise `Contended` from a contended job: the framework's failure path decides."""
    return Fail()


def _check_end(then: str) -> None:
    if then not in ("fail", "skip"):
        raise ValueError(f'then must be "fail" or "skip", not {then!r}')
