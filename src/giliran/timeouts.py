"""Durations that fit each other, checked once and never changed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

Seconds: TypeAlias = float | timedelta

TTL_MIN, TTL_MAX = 1.0, 86_400.0
MAX_HOLD_MAX = 7 * 86_400.0
RETAIN_MAX = 400 * 86_400.0
MARGIN_MIN, MARGIN_SHARE = 0.05, 0.01


def seconds(value: Seconds, name: str) -> float:
    """Read a duration.

    Raises:
        TypeError: for anything but int, float and timedelta (a bool is no duration).
        ValueError: for NaN, infinity and negative values.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name} must be seconds or a timedelta, not {value!r}")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} must be a finite duration of at least 0 s, not {value!r}")
    return float(value)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a lease, its job and its record may live, in seconds.

    Attributes:
        ttl: how long the lock outlives a dead holder; renewed every third of it.
        max_hold: the execution timeout; no job holds longer.
        retain: how long a finished job's record is kept.
    """

    ttl: float
    max_hold: float
    retain: float

    def __post_init__(self) -> None:
        if not TTL_MIN <= self.ttl <= TTL_MAX:
            raise ValueError(
                f"ttl={self.ttl:g} s is outside {TTL_MIN:g} s to {TTL_MAX:g} s: a shorter lease is "
                "lost to ordinary pauses, a longer one blocks the resource after a crash; "
                "30 s is a good start, since a running job renews it"
            )
        if not self.ttl <= self.max_hold <= MAX_HOLD_MAX:
            raise ValueError(
                f"max_hold={self.max_hold:g} s must lie between ttl={self.ttl:g} s and "
                f"{MAX_HOLD_MAX:g} s: it is the execution timeout, after which the lease is not "
                "renewed; raise max_hold to the longest run you accept, or lower ttl"
            )
        if not self.ttl <= self.retain <= RETAIN_MAX:
            raise ValueError(
                f"retain={self.retain:g} s must lie between ttl={self.ttl:g} s and "
                f"{RETAIN_MAX:g} s: a record that is gone before a late copy of the job arrives "
                "lets it run again; keep it for as long as repeats may come, such as a day"
            )

    @property
    def margin(self) -> float:
        """How much earlier than Redis the holder stops trusting its lease."""
        return max(MARGIN_MIN, MARGIN_SHARE * self.ttl)

    @property
    def hold_margin(self) -> float:
        """The same for the end of max_hold: clocks drift apart for as long as a lease is held."""
        return max(MARGIN_MIN, MARGIN_SHARE * self.max_hold)

    @property
    def renew_every(self) -> float:
        """The heartbeat's pace."""
        return self.ttl / 3

    @property
    def renew_timeout(self) -> float:
        """How long one renewal may take, so that two more fit after the first fails."""
        return self.ttl / 8


def milliseconds(duration: float) -> str:
    """Write seconds as whole milliseconds for Redis, rounded up."""
    return str(math.ceil(duration * 1000))
