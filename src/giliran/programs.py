"""What a holder does over time: claim, keep, finish. Generators without I/O, clock or luck.

The rule they share: `trusted_until` is counted from the clock *before* a request was sent, never
from its reply, so the holder stops trusting before Redis can give the key away. A request without
an answer may have been applied or not; sending it again with the same token is always right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from giliran import store
from giliran.errors import LeaseLost, StoreMisconfigured, StoreUnavailable
from giliran.events import Event
from giliran.lease import Lease
from giliran.steps import Emit, Program, Sleep, call, now
from giliran.store import Answer, Ask, Busy, Ending, Finished, Held, Memory

ANSWER_TIMEOUT = 2.0
RESEND_PAUSE = 0.05
POLL_FIRST, POLL_LONGEST = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class Claimed:
    """An answer to a claim, and the local clock just before the request that got it."""

    answer: Answer
    asked: float


def claim(ask: Ask, patience: float) -> Program[Claimed]:
    """Ask until Redis answers, for at most `patience` seconds.

    Raises:
        StoreUnavailable: without an answer; `ambiguous` if the lease may be ours all the same.
    """
    give_up_at = (yield from now()) + patience
    timeouts = ask.timeouts
    ambiguous = False
    while True:
        asked = yield from now()
        try:
            answer = yield from call(store.claim(ask), ANSWER_TIMEOUT)
        except StoreUnavailable as error:
            ambiguous = error.ambiguous = ambiguous or error.ambiguous
            over = (yield from now()) + RESEND_PAUSE >= give_up_at
            if over or isinstance(error, StoreMisconfigured):
                raise
            yield Sleep((yield from now()) + RESEND_PAUSE)
            continue
        answered = yield from now()
        if not isinstance(answer, Held) or answered < asked + timeouts.ttl - timeouts.margin:
            return Claimed(answer, asked)
        # Came too late to be trusted: the re-send refreshes the TTL.
        ambiguous = True
        if answered >= give_up_at:
            detail = f"answered {answered - asked:.1f} s late, when the lease was as good as over"
            raise StoreUnavailable("unreachable", detail, ambiguous=True)


def acquire(
    ask: Ask, patience: float, budget: float, luck: Callable[[], float]
) -> Program[Claimed]:
    """Claim, and while the resource is busy try again for `budget` seconds.

    The last try is made at the end of the budget. `luck` draws from 0 to 1.
    """
    ends = (yield from now()) + budget
    pause = POLL_FIRST
    while True:
        claimed = yield from claim(ask, patience)
        left = ends - (yield from now())
        if not isinstance(claimed.answer, Busy) or left <= 0:
            return claimed
        remaining = claimed.answer.remaining
        nap = min(
            pause * (0.5 + luck() / 2),
            left,
            POLL_LONGEST if remaining is None else remaining + 0.001,
        )
        yield Sleep((yield from now()) + nap)
        pause = min(pause * 2, POLL_LONGEST)


def keep(lease: Lease, event: Event) -> Program[None]:
    """Renew the lease until it is lost, note why, and return.

    Errors are retried for as long as the lease is trusted; a definite "not yours" ends it at once.
    `event` is the template of what is told.
    """
    timeouts = lease.timeouts
    renewal = store.renew(lease.key, lease.token, timeouts.ttl)
    due = lease.trusted_until - timeouts.ttl + timeouts.margin + timeouts.renew_every
    unreachable = False
    while True:
        if due < lease.trusted_until:
            yield Sleep(due, early=timeouts.renew_every / 10)
        else:
            yield Sleep(lease.trusted_until)
        asked = yield from now()
        if asked >= lease.trusted_until:
            reason = lease.lost  # "expired" or "max_hold"
            yield from lose(
                lease, "unreachable" if unreachable and reason == "expired" else reason, event
            )
            return
        try:
            answer = yield from call(
                renewal, min(timeouts.renew_timeout, lease.trusted_until - asked)
            )
        except StoreUnavailable as error:
            unreachable = True
            due = (yield from now()) + timeouts.renew_every / 4
            yield Emit(replace(event, name="lock.renew_failed", reason=error.code))
            continue
        if answer <= 0:
            yield from lose(lease, {0: "expired", -1: "taken", -2: "max_hold"}[answer], event)
            return
        lease.trust_from(asked)
        unreachable = False
        due = asked + timeouts.renew_every


def lose(lease: Lease, reason: str, event: Event) -> Program[None]:
    """Note the loss of a lease and tell it once."""
    if lease.lose(reason):
        yield Emit(replace(event, name="lock.lost", result="lost", reason=reason))


def finish(
    lease: Lease, ending: Ending, memory: Memory, result: str, event: Event
) -> Program[Finished]:
    """End the lease and settle the record.

    A record is tried for as long as the lease is trusted, a mere release only briefly: it would
    expire by itself. If Redis refuses to write the record, the effect has happened all the same:
    that is told as `record.unrecorded` and does not fail the job.

    Raises:
        LeaseLost: if it was over before, or a record could not be confirmed in time.
    """
    resend = False
    failed = ""
    give_up_at = (yield from now()) + ANSWER_TIMEOUT
    while True:
        asked = yield from now()
        if lease.lost and failed and ending in ("forget", "release"):
            return Finished("released", failed)  # The body ended in time; the lock did since.
        if lease.lost:
            yield from lose(lease, "unreachable" if failed else lease.lost, event)
            raise LeaseLost(lease.key, lease.lost)
        request = store.finish(
            lease.key, lease.token, ending, memory, result, lease.timeouts.retain, resend=resend
        )
        try:
            finished = yield from call(request, min(ANSWER_TIMEOUT, lease.trusted_until - asked))
        except StoreUnavailable as error:
            resend, failed = resend or error.ambiguous, error.code
            refused = isinstance(error, StoreMisconfigured) or error.code in ("OOM", "MISCONF")
            if refused and ending in ("done", "failed"):
                yield Emit(replace(event, name="record.unrecorded", reason=error.code))
                ending = "release"  # Frees memory, so OOM does not refuse it.
                if error.code == "OOM":
                    continue
            elif ending in ("done", "failed") or ((yield from now()) < give_up_at and not refused):
                yield Sleep((yield from now()) + RESEND_PAUSE)
                continue
            return Finished("released", error.code)  # The lock is left to expire.
        if finished.answer == "lost":
            yield from lose(lease, finished.reason, event)
            raise LeaseLost(lease.key, finished.reason)
        return finished


def abandon(ask: Ask, ending: Ending) -> Program[None]:
    """Give back a lease that may be ours although nobody holds it here; best effort.

    `ending` is "forget" for a claim whose body never started, else "release". It ends with the
    first answer, or when the lease would have expired by itself.
    """
    give_up_at = (yield from now()) + ask.timeouts.ttl
    while (yield from now()) < give_up_at:
        request = store.finish(
            ask.lock_key, ask.token, ending, ask.memory, "", ask.timeouts.retain, resend=True
        )
        try:
            yield from call(request, ANSWER_TIMEOUT)
        except StoreUnavailable:
            yield Sleep((yield from now()) + POLL_LONGEST)
        else:
            return
