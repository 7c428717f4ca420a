"""One guarded call from its claim to its end: what every answer and every outcome leads to.

`open` and `close` are programs, so they are the same for threads, asyncio and simulation. Both end
in a verdict, which the faces carry out: they own the body, its interruption and the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from giliran import errors, failures, holder, programs
from giliran.errors import GaveUp, LeaseInterrupt, LeaseLost, StoreUnavailable
from giliran.events import Event
from giliran.jobs import Carried, Job
from giliran.lease import Lease
from giliran.policies import Fail, Policy, Requeue, Skip, Wait
from giliran.results import Codec
from giliran.steps import Emit, Program
from giliran.store import Ask, Busy, Done, Doubt, Ending, Held, Mismatch, Spent

OUTAGES_MAX = 20
OUTAGE_CAP = 60.0
# Lost by our own clock: Redis may have the lease still, renewed by a request whose answer was late.
_OUR_WORD = ("expired", "max_hold", "unreachable")


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


Ended: TypeAlias = Return | Raise | PutBack


@dataclass(frozen=True, slots=True)
class Returned:
    """The body returned."""

    value: object


@dataclass(frozen=True, slots=True)
class Raised:
    """The body raised."""

    error: BaseException


@dataclass(slots=True)
class Attempt:
    """One call of one guarded function.

    Attributes:
        ask: what is asked of Redis.
        rules: what was decided at decoration.
        job: the job that makes the call; None for a plain call.
        resource_id: the resource as the user named it.
        clock: the local clock.
        luck: draws from 0 to 1.
        owed: how to end a lease that may be ours although nothing here holds it.
    """

    ask: Ask
    rules: Rules
    job: Job | None
    resource_id: str
    clock: Callable[[], float]
    luck: Callable[[], float]
    owed: Ending | None = field(default=None)

    # ------------------------------------------------------------------ before the body

    def open(self, patience: float) -> Program[Run | Ended]:
        """Claim, and decide what comes next."""
        policy = self.rules.policy
        budget = policy.budget if isinstance(policy, Wait) else 0.0
        self.owed = "forget"  # Until an answer says otherwise, the claim may have been applied.
        try:
            claimed = yield from programs.acquire(self.ask, patience, budget, self.luck)
        except StoreUnavailable as error:
            self.owed = "forget" if error.ambiguous else None
            return (yield from self._unavailable(error))
        self.owed = None
        match claimed.answer:
            case Held(fence=fence, attempt=attempt):
                lease = Lease(
                    self.ask.lock_key, self.ask.token, fence, attempt, self.ask.timeouts,
                    claimed.asked, self.clock,
                )  # fmt: skip
                yield self.emit("lock.acquired", "acquired", fence=fence, attempt=attempt)
                return Run(lease)
            case Busy() as busy:
                return (yield from self._busy(busy))
            case Done() as done:
                return (yield from self._done(done))
            case Mismatch():
                yield self.emit("job.refused", "refused", "key_reused")
                return Raise(errors.KeyReused(self.ask.lock_key, self.ask.memory.name))
            case Doubt(attempt=attempt):
                yield self.emit("job.refused", "refused", "in_doubt")
                return Raise(errors.InDoubt(self.ask.lock_key, self.ask.memory.name, attempt))
            case Spent(attempt=attempt):
                return (yield from self._recoveries_spent(attempt))

    def _busy(self, busy: Busy) -> Program[Ended]:
        if busy.by != "another" and self.job is not None:
            # A job never meets itself as contention: never acked, skipped or failed. A copy's end
            # is decided when the original ends; an elder that published its retry is about to.
            left = busy.remaining or 1.0 if busy.by == "publication" else 0.0
            delay = max(1.0, left) * (1 + self.luck() / 4)
            yield self.emit("lock.duplicate", "requeued", busy.by, owner=busy.holder)
            return PutBack(min(delay, self._longest()), self.job.carried)
        yield self.emit("lock.contended", "contended", owner=busy.holder)
        match self.rules.policy:
            case Skip(returns=value):
                return (yield from self._skip(busy, value))
            case Wait(then="skip"):
                return (yield from self._skip(busy, None))
            case Requeue() as policy if self.job is not None:
                return (yield from self._requeue(self.job, policy, busy))
            case Requeue() | Wait() | Fail():
                yield self.emit("job.failed", "contended", "contended", owner=busy.holder)
                return Raise(errors.Contended(self.ask.lock_key, busy.holder, busy.remaining))

    def _skip(self, busy: Busy, value: object) -> Program[Ended]:
        yield self.emit("job.skipped", "skipped", "contended", owner=busy.holder)
        if self.job is None:
            return Raise(errors.Skipped(self.ask.lock_key, busy.holder))
        return Return(value)

    def _requeue(self, job: Job, policy: Requeue, busy: Busy) -> Program[Ended]:
        carried = job.carried
        since = carried.contended_since_ms or busy.server_ms
        waited = (busy.server_ms - since) / 1000
        left = policy.give_up_after - waited
        if left <= 0:
            yield self.emit("job.gave_up", "gave_up", "contention", owner=busy.holder)
            if policy.then == "skip":
                return Return(None)
            detail = f"contended for {waited:.0f} s, {carried.contentions} times put back"
            return Raise(GaveUp(self.ask.lock_key, "contention", detail))
        delay = policy.delay(carried.contentions, self.luck(), self._longest())
        yield self.emit("job.requeued", "requeued", "contended", owner=busy.holder, delay=delay)
        carried = replace(carried, contentions=carried.contentions + 1, contended_since_ms=since)
        return PutBack(min(delay, left), carried)

    def _longest(self) -> float:
        """How long the queue holds a message back without redelivering it, with room to spare."""
        visibility = None if self.job is None else self.job.visibility
        return float("inf") if visibility is None else visibility / 3

    def _done(self, done: Done) -> Program[Ended]:
        key, name = self.ask.lock_key, self.ask.memory.name
        yield self.emit("job.replayed", done.state, attempt=done.attempt)
        if done.result is None:
            return Raise(errors.ResultNotKept(key, name))
        try:
            if done.state == "done":
                return Return(self.rules.codec.decode(done.result))
            return Raise(failures.decode_failure(done.result, self.rules.remember))
        except (ValueError, LookupError) as error:  # Written by another version of the function.
            unreadable = errors.ResultNotKept(key, name)
            unreadable.add_note(f"what was kept does not fit the function any more: {error}")
            return Raise(unreadable)

    def _recoveries_spent(self, attempts: int) -> Program[Ended]:
        yield self.emit("job.gave_up", "gave_up", "recoveries")
        detail = f"{attempts} attempts crashed or lost their lease; look at the job, not the lock"
        return Raise(GaveUp(self.ask.lock_key, "recoveries", detail))

    def _unavailable(self, error: StoreUnavailable) -> Program[Ended]:
        yield self.emit("store.unavailable", "unavailable", error.code)
        if isinstance(error, errors.StoreMisconfigured):
            yield self.emit("lock.misused", "unavailable", error.code)
        if self.job is None or self.job.carried.outages >= OUTAGES_MAX:
            yield self.emit("job.failed", "unavailable", error.code)
            return Raise(error)
        outages = self.job.carried.outages
        ceiling = min(OUTAGE_CAP, 2.0**outages, self._longest())
        delay = ceiling * (0.5 + self.luck() / 2)
        yield self.emit("job.requeued", "requeued", "unavailable", delay=delay)
        return PutBack(delay, replace(self.job.carried, outages=outages + 1))

    # ------------------------------------------------------------------ after the body

    def close(self, lease: Lease, outcome: Returned | Raised) -> Program[Ended]:
        """Settle record and lease, and decide how the call ends."""
        if isinstance(outcome, Returned):
            return (yield from self._returned(lease, outcome.value))
        error = outcome.error
        told = isinstance(error, LeaseLost) and error.key == lease.key  # By `lease.check()`.
        if lease.lost and (told or isinstance(error, LeaseInterrupt)):
            yield from programs.lose(lease, lease.lost, self.event("lock.lost"))
            return (yield from self._lost(LeaseLost(lease.key, lease.lost)))
        name, ending, result = self._ending(error)
        try:
            yield from self._finish(lease, ending, result)
        except LeaseLost:
            self._owe(lease)  # Told by the program; the body's own error wins.
        if name:
            yield self.emit(name, "raised", type(error).__name__)
        return Raise(error)

    def _returned(self, lease: Lease, value: object) -> Program[Ended]:
        ending: Ending = "release"
        result = ""
        if self.ask.memory.kind:
            ending = "done"
            stored = self.rules.codec.encode(value)
            result = stored.text or ""
            if stored.text is None:
                yield self.emit("record.not_kept", "done", stored.why)
        try:
            yield from self._finish(lease, ending, result)
        except LeaseLost as lost:
            return (yield from self._lost(lost))
        yield self.emit("job.ran", "ran")
        return Return(value)

    def _finish(self, lease: Lease, ending: Ending, result: str) -> Program[None]:
        self.owed = "release"  # Until it is settled; what is left of it must not wait for its TTL.
        finished = yield from programs.finish(
            lease, ending, self.ask.memory, result, self.event("lock.released")
        )
        if not finished.reason:
            self.owed = None
        elif ending == "forget":
            self.owed = "forget"  # It gave up; the record must not look like a crash.
        lease.end()
        yield self.emit("lock.released", "released", fence=lease.fence)

    def _ending(self, error: BaseException) -> tuple[str, Ending, str]:
        """Choose outcome, ending and result for a body that raised."""
        control = self.job.control if self.job else ()
        limits = self.job.limits if self.job else ()
        if isinstance(error, control):
            return "", "forget", ""
        if isinstance(error, limits) or not isinstance(error, Exception):
            return "job.crashed", "release", ""  # The record stays *running*: it is in doubt.
        if self.ask.memory.kind == "record" and isinstance(error, self.rules.remember):
            return "job.failed", "failed", failures.encode_failure(error, self.rules.remember)
        return "job.failed", "forget", ""

    def _owe(self, lease: Lease) -> None:
        """A lease that ran out of time, not taken from us, need not block others for its TTL."""
        self.owed = "release" if lease.lost in _OUR_WORD else None

    def _lost(self, lost: LeaseLost) -> Program[Ended]:
        self.owed = "release" if lost.reason in _OUR_WORD else None
        if self.job is None:
            return Raise(lost)
        if lost.reason == "max_hold":
            yield self.emit("job.failed", "lost", lost.reason)
            return Raise(lost)  # It would only run too long again: the failure path decides.
        carried = self.job.carried
        if carried.recoveries >= self.rules.recoveries:
            return (yield from self._recoveries_spent(carried.recoveries + 1))
        delay = min(1.0, self._longest()) * (0.5 + self.luck() / 2)
        yield self.emit("job.requeued", "requeued", lost.reason, delay=delay)
        return PutBack(delay, replace(carried, recoveries=carried.recoveries + 1))

    # ------------------------------------------------------------------ what is told

    def event(
        self, name: str, result: str = "", reason: str = "", owner: str = "", **fields: object
    ) -> Event:
        """Make an event of this attempt."""
        ask = self.ask
        return Event(
            name=name,
            lock_key=ask.lock_key,
            resource_id=self.resource_id,
            job_id=ask.claimant.job_id,
            lock_owner=owner or holder.describe(ask.claimant.text("", "")),
            lock_ttl=ask.timeouts.ttl,
            result=result,
            reason=reason,
            fields={"job_type": ask.claimant.job_type, **fields},
        )

    def emit(
        self, name: str, result: str = "", reason: str = "", owner: str = "", **fields: object
    ) -> Emit:
        """Make the step that tells an event of this attempt."""
        return Emit(self.event(name, result, reason, owner, **fields))
