"""What can go wrong, split by whose move is next.

```
GiliranError
├── Contended            wait: another job holds the resource
├── GaveUp               wait is over: the contention budget, or the recoveries, are spent
├── Skipped              nothing to do: a plain call under `skip()` met a busy resource
├── LeaseLost            stop: the lease ended while the body ran
├── AlreadyHeld          fix your code: this very context holds the resource already
├── KeyReused            fix your code: one idempotency key, two different requests
├── InDoubt              ask an operator: an earlier attempt crashed half-way
├── ResultNotKept        the effect is done, but its result was too large or not JSON
└── StoreUnavailable     Redis is away or refuses: nothing ran
    └── StoreMisconfigured   an operator must act: password, rights, wrong key type, old server
LeaseInterrupt           (BaseException) raised *inside* the body when its lease is lost
```
"""

from __future__ import annotations


class GiliranError(Exception):
    """Base of every error that leaves a guard.

    Their `args` are what they were made with, so that result backends and pickle make them again.
    """


class Contended(GiliranError):
    """Another job holds the resource, or one of several.

    Attributes:
        key: the lock key that is held.
        holder: who holds it, as text for people; empty if another program does.
        remaining: seconds until its lease ends unless renewed; None if it has no known end.
    """

    def __init__(self, key: str, holder: str, remaining: float | None) -> None:
        super().__init__(key, holder, remaining)
        self.key = key
        self.holder = holder
        self.remaining = remaining

    def __str__(self) -> str:
        left = self.remaining
        until = "without a known end" if left is None else f"for another {left:.1f} s"
        return f"{self.key!r} is held by {self.holder or 'another program'} {until}"


class GaveUp(GiliranError):
    """The job's time in contention, or its recoveries after crashes and losses, are spent.

    Attributes:
        key: the lock key.
        reason: "contention" or "recoveries".
        detail: how much was spent.
    """

    def __init__(self, key: str, reason: str, detail: str) -> None:
        super().__init__(key, reason, detail)
        self.key = key
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"gave up {self.key!r}: {self.detail}"


class Skipped(GiliranError):
    """A plain call under `skip()` met a busy resource; the body did not run."""

    def __init__(self, key: str, holder: str) -> None:
        super().__init__(key, holder)
        self.key = key
        self.holder = holder

    def __str__(self) -> str:
        return f"skipped: {self.key!r} is held by {self.holder or 'another program'}"


class LeaseLost(GiliranError):
    """The lease ended before the body did: what it did since may race with the next holder.

    Attributes:
        key: the lock key; of several resources, all of them with a space between.
        reason: "expired", "taken", "broken", "unreachable", "max_hold", "forked" or
            "ended" (used after its body).
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(key, reason)
        self.key = key
        self.reason = reason

    def __str__(self) -> str:
        return f"lost the lease of {self.key!r}: {_LOSSES.get(self.reason, self.reason)}"


_LOSSES = {
    "expired": "expired; this process was frozen, or Redis lost the key",
    "taken": "taken; another holder has it now",
    "broken": "broken; an operator ended it",
    "unreachable": "unreachable; Redis did not confirm it in time",
    "max_hold": "max_hold; the job ran longer than its execution timeout",
    "forked": "forked; a lease belongs to the process that claimed it",
    "ended": "ended; the guarded body is over",
}


class AlreadyHeld(GiliranError):
    """This very thread or task holds the resource already; waiting for oneself never ends.

    Leases are not re-entrant: guard the outer function only, or pass its `lease` on.
    """

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return (
            f"{self.key!r} is already held by this very call: leases are not re-entrant; "
            "guard the outer function only, or give the inner one a key of its own"
        )


class KeyReused(GiliranError):
    """One idempotency key came with two different requests; the second one did not run."""

    def __init__(self, key: str, idempotency_key: str) -> None:
        super().__init__(key, idempotency_key)
        self.key = key
        self.idempotency_key = idempotency_key

    def __str__(self) -> str:
        return (
            f"idempotency key {self.idempotency_key or self.key!r} was used before with other "
            "arguments; the job did not run: use a new key, or name what must agree with "
            "fingerprint=(...)"
        )


class InDoubt(GiliranError):
    """An earlier attempt crashed half-way and `after_crash="hold"`: the job did not run again."""

    def __init__(self, key: str, idempotency_key: str, attempt: int) -> None:
        super().__init__(key, idempotency_key, attempt)
        self.key = key
        self.idempotency_key = idempotency_key
        self.attempt = attempt

    def __str__(self) -> str:
        return (
            f"attempt {self.attempt} of {self.idempotency_key or self.key!r} crashed and its "
            "effect is unknown; find out whether it happened, then resolve the record as done "
            "or forget it"
        )


class ResultNotKept(GiliranError):
    """The effect happened once, but its result cannot be replayed: it was not kept."""

    def __init__(self, key: str, idempotency_key: str) -> None:
        super().__init__(key, idempotency_key)
        self.key = key
        self.idempotency_key = idempotency_key

    def __str__(self) -> str:
        return (
            f"{self.idempotency_key or self.key!r} is done, but its result was not kept "
            "(too large, or not JSON): return something smaller, or read the effect itself"
        )


class StoreUnavailable(GiliranError):
    """Redis did not answer, or refused; the body did not start because of it.

    Attributes:
        code: the server's error prefix ("OOM", "READONLY", …) or "unreachable".
        detail: what happened and what to do.
        ambiguous: True if the request may have been applied all the same.
    """

    def __init__(self, code: str, detail: str, ambiguous: bool = False) -> None:  # noqa: FBT001, FBT002  must be made again from its args
        super().__init__(code, detail, ambiguous)
        self.code = code
        self.detail = detail
        self.ambiguous = ambiguous

    def __str__(self) -> str:
        return self.detail


class StoreMisconfigured(StoreUnavailable):
    """Redis answers, but will not serve us until somebody changes its or our configuration."""


class LeaseInterrupt(BaseException):
    """Raised inside a running body at the moment its lease can no longer be trusted.

    A `BaseException`, so that the body's own `except Exception` does not swallow it and go on
    working beside the next holder. Clean up and let it pass: what leaves the guard is
    `LeaseLost`.
    """


class NotPublished(Exception):
    """A parked job was not published; it stays parked. Never leaves a guard.

    Attributes:
        reason: why, in a word.
        outage: the broker could not be reached: it is not the job's fault.
    """

    def __init__(self, reason: str, *, outage: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.outage = outage
