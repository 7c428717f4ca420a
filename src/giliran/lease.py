"""The right to work on a resource, for a time: a value of one term."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, cast

from giliran.errors import LeaseLost
from giliran.timeouts import Timeouts


class Lease:
    """What a running body holds. It is of one term: once lost or finished it never revives.

    Attributes:
        key: the lock key as stored in Redis; of several, all of them with a space between, which
            no key contains.
        fences: the fencing token of each lock key; larger than that of every earlier holder of
            that resource. Write it beside your data and refuse a smaller one.
        attempt: how many attempts of this idempotency key have started, this one included.
        timeouts: the durations the lease was claimed with.
    """

    __slots__ = (
        "_clock", "_ended", "_lost", "_pid", "attempt", "fences", "hold_until", "key", "timeouts",
        "together", "token", "trusted_until",
    )  # fmt: skip

    def __init__(
        self,
        key: str,
        token: str,
        fence: int,
        attempt: int,
        timeouts: Timeouts,
        asked: float,
        clock: Callable[[], float],
        further: Mapping[str, int] = MappingProxyType({}),
        *,
        together: bool = True,
    ) -> None:
        self.fences: Final[Mapping[str, int]] = MappingProxyType({key: fence, **further})
        self.key: Final = " ".join(self.fences)
        self.together: Final = together  # One script reaches all resources.
        self.token: Final = token
        self.attempt: Final = attempt
        self.timeouts: Final = timeouts
        self.hold_until: Final = asked + timeouts.max_hold - timeouts.hold_margin
        self.trusted_until = self._end(asked)
        self._clock = clock
        self._lost = ""
        self._ended = False
        self._pid = os.getpid()

    @property
    def fence(self) -> int:
        """The fencing token of the one resource.

        Raises:
            TypeError: if the lease is of several resources: each has a fence of its own.
        """
        if len(self.fences) > 1:
            raise TypeError(
                f"this lease is of {len(self.fences)} resources, each with a fence of its own: "
                f"take lease.fences[{next(iter(self.fences))!r}], or that of the one you write to"
            )
        return next(iter(self.fences.values()))

    def trust_from(self, asked: float) -> None:
        """Trust the lease from a request that was sent at `asked` and confirmed.

        An answer that comes when it cannot be trusted any more does not revive it.
        """
        if not self.lost:
            self.trusted_until = max(self.trusted_until, self._end(asked))

    def _end(self, asked: float) -> float:
        return min(asked + self.timeouts.ttl - self.timeouts.margin, self.hold_until)

    def lose(self, reason: str) -> bool:
        """Note the loss; True if it is news. The first reason stays."""
        if self._lost or self._ended:
            return False
        self._lost = reason
        return True

    def end(self) -> None:
        """Note that the term is over."""
        self._ended = True

    @property
    def active(self) -> bool:
        """Whether the term is still running in this process, trusted or not."""
        return not self._ended and self._pid == os.getpid()

    @property
    def lost(self) -> str:
        """Why the lease cannot be trusted any more, or "" while it can. Costs no round trip."""
        if self._lost:
            return self._lost
        if self._pid != os.getpid():
            return "forked"
        if self._ended:
            return "ended"
        if self._clock() < self.trusted_until:
            return ""
        return "max_hold" if self.trusted_until >= self.hold_until else "expired"

    def remaining(self) -> float:
        """Seconds for which the lease is trusted without another renewal; 0 once lost."""
        return 0.0 if self.lost else max(0.0, self.trusted_until - self._clock())

    def check(self) -> None:
        """Make sure, without a round trip, that the lease is still ours.

        Raises:
            LeaseLost: with the reason, as soon as it cannot be trusted any more.
        """
        if self.lost:
            raise LeaseLost(self.key, self.lost)

    def __repr__(self) -> str:
        state = f"lost: {self.lost}" if self.lost else f"{self.remaining():.1f} s left"
        fences = " ".join(f"{key!r} fence={fence}" for key, fence in self.fences.items())
        return f"<Lease {fences} {state}>"


class _Injected:
    def __repr__(self) -> str:
        return "INJECTED"


INJECTED: Final = cast("Lease", _Injected())
"""Default of a parameter that a guard fills with the running `Lease`."""
