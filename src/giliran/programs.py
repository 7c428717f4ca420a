"""What a holder does over time: claim, keep, finish. Generators without I/O, clock or luck.

The rule they share: `trusted_until` is counted from the clock *before* a request was sent, never
from its reply, so the holder stops trusting before Redis can give the key away. A request without
an answer may have been applied or not; sending it again with the same token is always right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from giliran import store
from giliran.errors import LeaseLost, StoreMisconfigured, StoreUnavailable
from giliran.events import Event
from giliran.lease import Lease
from giliran.line import Turn
from giliran.steps import Call, Emit, Program, Sleep, call, now
from giliran.store import Answer, Ask, Ending, Finished, Held, Memory

ANSWER_TIMEOUT = 2.0
RESEND_PAUSE = 0.05
DEBT_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class Claimed:
    """An answer to a claim, and the local clock just before the request that got it.

    `together` is False if its resources needed a script each.
    """

    answer: Answer
    asked: float
    together: bool = True


def claim(ask: Ask, patience: float, alive: float | None = None) -> Program[Claimed]:
    """Ask until Redis answers, for at most `patience` seconds; if busy, wait for `alive` seconds.

    Raises:
        StoreUnavailable: without an answer; `ambiguous` if the lease may be ours all the same.
    """
    if not ask.further:
        return (yield from _ask(ask, patience, alive))
    try:
        return (yield from _ask(ask, patience, alive))
    except StoreMisconfigured as error:
        if error.code != "CROSSSLOT":
            raise
    return (yield from _in_order(ask, patience))


def _in_order(ask: Ask, patience: float) -> Program[Claimed]:
    """Claim resources of several cluster slots one after the other, and give back what is too few.

    Nobody waits while it holds some of them, and all ask in the same order, so of those who want
    the same one always gets on. The record is looked at first and written last, when all are held.
    """
    begun = yield from now()
    give_up_at = begun + patience
    records = ask.memory.kind == "record"
    asks = [replace(ask, further=(), memory=replace(ask.memory, look=records))]
    asks += [replace(ask, lock_key=key, further=(), memory=Memory()) for key in ask.further]
    asks += [replace(ask, further=())] if records else []
    held: dict[str, Held] = {}
    try:
        for each in asks:
            claimed = yield from _ask(each, max(0.0, give_up_at - (yield from now())))
            if not isinstance(claimed.answer, Held):
                for key, grant in reversed(held.items()):
                    yield from _give_back(ask, key, grant)
                return claimed
            begun = begun if held else claimed.asked
            held[each.lock_key] = claimed.answer
    except StoreUnavailable as error:
        error.ambiguous = error.ambiguous or bool(held)
        raise
    if (yield from now()) >= begun + ask.timeouts.ttl - ask.timeouts.margin:
        detail = "claiming one resource after the other took longer than the first can be trusted"
        raise StoreUnavailable("unreachable", detail, ambiguous=True)
    first, *others = (held[key] for key in ask.keys)
    answer = replace(first, further=tuple(other.fence for other in others))
    return Claimed(answer, begun, together=False)


def _give_back(ask: Ask, key: str, grant: Held) -> Program[None]:
    """Give back one of several resources at once; sweeps publish whoever is next."""
    request = store.finish(
        key, ask.token, "release", Memory(), "", ask.timeouts.retain,
        resend=True, fence=grant.fence,
    )  # fmt: skip
    yield from call(request, ANSWER_TIMEOUT)


def _ask(ask: Ask, patience: float, alive: float | None = None) -> Program[Claimed]:
    give_up_at = (yield from now()) + patience
    timeouts = ask.timeouts
    ambiguous = False
    while True:
        asked = yield from now()
        try:
            answer = yield from call(store.claim(ask, alive), ANSWER_TIMEOUT)
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


def keep(lease: Lease, event: Event) -> Program[None]:
    """Renew the lease until it is lost, note why, and return.

    Errors are retried for as long as the lease is trusted; a definite "not yours" ends it at once.
    `event` is the template of what is told.
    """
    timeouts = lease.timeouts
    renewals = [
        store.renew(keys[0], lease.token, timeouts.ttl, keys[1:]) for keys in _at_once(lease)
    ]
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
            answer = yield from _renew(lease, renewals, asked)
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


def _at_once(lease: Lease) -> list[tuple[str, ...]]:
    """Answer which lock keys one script reaches."""
    return [tuple(lease.fences)] if lease.together else [(key,) for key in lease.fences]


def _renew(lease: Lease, renewals: list[Call[int]], instant: float) -> Program[int]:
    """Renew all of a lease, up to the first resource that is lost."""
    answer = 0
    for renewal in renewals:
        left = min(lease.timeouts.renew_timeout, lease.trusted_until - instant)
        answer = yield from call(renewal, max(left, 0.001))
        if answer <= 0:
            break
        instant = yield from now()
    return answer


def lose(lease: Lease, reason: str, event: Event) -> Program[None]:
    """Note the loss of a lease and tell it once."""
    if lease.lose(reason):
        yield Emit(replace(event, name="lock.lost", result="lost", reason=reason))


def finish(
    lease: Lease,
    ending: Ending,
    memory: Memory,
    result: str,
    event: Event,
    *,
    ticket: str = "",
    routes: tuple[str, ...] = (),
) -> Program[Finished]:
    """End the lease and settle the record.

    A record is tried for as long as the lease is trusted, a mere release only briefly: it would
    expire by itself. If Redis refuses to write the record, the effect has happened all the same:
    that is told as `record.unrecorded` and does not fail the job.

    Raises:
        LeaseLost: if it was over before, or a record could not be confirmed in time.
    """
    first, *others = _at_once(lease)
    called: list[Turn | None] = []
    reason = ""
    for (key,) in others:  # First: what was lost of them must keep the record from being written.
        ended = yield from _end(lease, (key,), "release", Memory(), "", event, routes=routes)
        called.append(ended.called)
        reason = reason or ended.reason
    finished = yield from _end(
        lease, first, ending, memory, result, event, ticket=ticket, routes=routes
    )
    if lease.together:
        return finished
    return replace(finished, reason=finished.reason or reason, further=tuple(called))


def _end(
    lease: Lease,
    keys: tuple[str, ...],
    ending: Ending,
    memory: Memory,
    result: str,
    event: Event,
    *,
    ticket: str = "",
    routes: tuple[str, ...] = (),
) -> Program[Finished]:
    """End what one script reaches of a lease."""
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
            keys[0], lease.token, ending, memory, result, lease.timeouts.retain,
            resend=resend, ticket=ticket, routes=routes, further=keys[1:],
        )  # fmt: skip
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


def abandon(ask: Ask, ending: Ending, routes: tuple[str, ...] = ()) -> Program[Turn | None]:
    """Give back one resource that may be ours although nobody holds it here; best effort.

    `ending` is "forget" for a claim whose body never started, else "release". It ends with the
    first answer, which tells who was called instead, or when the lease would have expired.
    """
    give_up_at = (yield from now()) + ask.timeouts.ttl
    while (yield from now()) < give_up_at:
        request = store.finish(
            ask.lock_key, ask.token, ending, ask.memory, "", ask.timeouts.retain,
            resend=True, routes=routes,
        )  # fmt: skip
        try:
            return (yield from call(request, ANSWER_TIMEOUT)).called
        except StoreUnavailable:
            yield Sleep((yield from now()) + DEBT_PAUSE)
    return None
