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
    """Base of every error that leaves a guard."""


class Contended(GiliranError):
    """Another job holds the resource.

    Attributes:
        key: the lock key.
        holder: who holds it, as text for people; empty if another program does.
        remaining: seconds until its lease ends unless renewed; None if it has no known end.
    """

    def __init__(self, key: str, holder: str, remaining: float | None) -> None:
        self.key = key
        self.holder = holder
        self.remaining = remaining
        until = "without a known end" if remaining is None else f"for another {remaining:.1f} s"
        super().__init__(f"{key!r} is held by {holder or 'another program'} {until}")


class GaveUp(GiliranError):
    """The job's time in contention, or its recoveries after crashes and losses, are spent.

    Attributes:
        key: the lock key.
        reason: "contention" or "recoveries".
    """

    def __init__(self, key: str, reason: str, detail: str) -> None:
        self.key = key
        self.reason = reason
        super().__init__(f"gave up {key!r}: {detail}")


class Skipped(GiliranError):
    """A plain call under `skip()` met a busy resource; the body did not run."""

    def __init__(self, key: str, holder: str) -> None:
        self.key = key
        self.holder = holder
        super().__init__(f"skipped: {key!r} is held by {holder or 'another program'}")


class LeaseLost(GiliranError):
    """The lease ended before the body did: what it did since may race with the next holder.

    Attributes:
        key: the lock key.
        reason: "expired", "taken", "broken", "unreachable", "max_hold", "forked" or
            "ended" (used after its body).
    """

    def __init__(self, key: str, reason: str) -> None:
        self.key = key
        self.reason = reason
        super().__init__(f"lost the lease of {key!r}: {_LOSSES.get(reason, reason)}")


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
        self.key = key
        super().__init__(
            f"{key!r} is already held by this very call: leases are not re-entrant; "
            "guard the outer function only, or give the inner one a key of its own"
        )


class KeyReused(GiliranError):
    """One idempotency key came with two different requests; the second one did not run."""

    def __init__(self, key: str, idempotency_key: str) -> None:
        self.key = key
        self.idempotency_key = idempotency_key
        super().__init__(
            f"idempotency key {idempotency_key!r} was used before with other arguments; "
            "the job did not run: use a new key, or name what must agree with fingerprint=(...)"
        )


class InDoubt(GiliranError):
    """An earlier attempt crashed half-way and `after_crash="hold"`: the job did not run again."""

    def __init__(self, key: str, idempotency_key: str, attempt: int) -> None:
        self.key = key
        self.idempotency_key = idempotency_key
        self.attempt = attempt
        super().__init__(
            f"attempt {attempt} of {idempotency_key!r} crashed and its effect is unknown; "
            "find out whether it happened, then resolve the record as done or forget it"
        )


class ResultNotKept(GiliranError):
    """The effect happened once, but its result cannot be replayed: it was not kept."""

    def __init__(self, key: str, idempotency_key: str) -> None:
        self.key = key
        self.idempotency_key = idempotency_key
        super().__init__(
            f"{idempotency_key!r} is done, but its result was not kept "
            "(too large, or not JSON): return something smaller, or read the effect itself"
        )


class StoreUnavailable(GiliranError):
    """Redis did not answer, or refused; the body did not start because of it.

    Attributes:
        code: the server's error prefix ("OOM", "READONLY", …) or "unreachable".
        ambiguous: True if the request may have been applied all the same.
    """

    def __init__(self, code: str, detail: str, *, ambiguous: bool) -> None:
        self.code = code
        self.ambiguous = ambiguous
        super().__init__(detail)


class StoreMisconfigured(StoreUnavailable):
    """Redis answers, but will not serve us until somebody changes its or our configuration."""


class LeaseInterrupt(BaseException):
    """Raised inside a running body at the moment its lease can no longer be trusted.

    A `BaseException`, so that the body's own `except Exception` does not swallow it and go on
    working beside the next holder. Clean up and let it pass: what leaves the guard is
    `LeaseLost`.
    """
