"""One guarded call from its claim to its end: what every answer and every outcome leads to.

`open` and `close` are programs, so they are the same for threads, asyncio and simulation. Both end
in a verdict, which the faces carry out: they own the body, its interruption and the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from giliran import errors, failures, handoff, programs
from giliran.errors import GaveUp, LeaseInterrupt, LeaseLost, StoreUnavailable
from giliran.events import Event
from giliran.handoff import Caller
from giliran.jobs import Job
from giliran.lease import Lease
from giliran.line import Place, Shelved, Terms
from giliran.policies import Coalesce, Fail, HandOff, Requeue, Skip, Wait, requeue
from giliran.steps import Emit, Program
from giliran.store import Ask, Busy, Done, Doubt, Ending, Held, Mismatch, Spent
from giliran.verdicts import Ended, Parked, PutBack, Raise, Raised, Return, Returned, Rules, Run

TRIES = 3
MOST = 10_000
OUTAGES_MAX = 20
OUTAGE_CAP = 60.0
# Lost by our own clock: Redis may have the lease still, renewed by a request whose answer was late.
_OUR_WORD = ("expired", "max_hold", "unreachable")


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
        proven: whether the lease of a holder that is proven dead is ended at once.
        routes: the queues whose parked jobs this process can publish.
        owed: how to end a lease that may be ours although nothing here holds it.
        since_ms: server time of the first contention of this delivery; 0 if none yet.
        debts: what is to be done after the call, by somebody who has time.
    """

    ask: Ask
    rules: Rules
    job: Job | None
    resource_id: str
    clock: Callable[[], float]
    luck: Callable[[], float]
    routes: tuple[str, ...] = ()
    proven: bool = False
    owed: Ending | None = field(default=None)
    since_ms: int = field(default=0)
    debts: list[Program[None]] = field(default_factory=list[Program[None]])
    _caller: Caller = field(init=False)

    def __post_init__(self) -> None:
        template = self.event("job.called")
        self._caller = Caller(self.ask.lock_key, self.ask.token, self.routes, template, self.proven)

    def settle(self) -> list[Program[None]]:
        """Take the programs that this call leaves to housekeeping."""
        debts, self.debts = self.debts, []
        if self.owed is not None:
            debts.append(handoff.give_back(self._caller, self.ask, self.owed))
            self.owed = None
        return debts

    # ------------------------------------------------------------------ before the body

    def open(self, patience: float) -> Program[Run | Ended]:
        """Claim, and decide what comes next."""
        if self.job is not None and self.job.carried.verdict == "superseded":
            return (yield from self._superseded())
        for _ in range(TRIES + len(self.ask.further)):  # Each may have a dead holder of its own.
            verdict = yield from self._try(patience)
            if verdict is not None:
                return verdict
        if self.job is None:  # It met a dead holder each time.
            yield self.emit("job.failed", "contended", "contended")
            return Raise(errors.Contended(self.ask.lock_key, "one dead holder after another", 0.0))
        delay = min(1 + self.luck(), self._longest())
        yield self.emit("job.requeued", "requeued", "contended", delay=delay)
        return PutBack(delay, self.job.carried)

    def _try(self, patience: float) -> Program[Run | Ended | None]:
        """Claim once; None if the resource became free while the job was being parked."""
        policy = self.rules.policy
        budget = policy.budget if isinstance(policy, Wait) else 0.0
        self.owed = "forget"  # Until an answer says otherwise, the claim may have been applied.
        stands = budget and not self.ask.further
        waits = [handoff.leave(self._caller, self.ask.ticket)] if stands else []
        self.debts += waits
        try:
            claimed = yield from handoff.acquire(
                self.ask, patience, budget, self.luck, self._caller
            )
        except StoreUnavailable as error:
            self.owed = "forget" if error.ambiguous else None
            return (yield from self._unavailable(error))
        self.owed = None
        match claimed.answer:
            case Held(fence=fence, attempt=attempt, further=fences):
                lease = Lease(
                    self.ask.lock_key, self.ask.token, fence, attempt, self.ask.timeouts,
                    claimed.asked, self.clock, dict(zip(self.ask.further, fences, strict=True)),
                    together=claimed.together,
                )  # fmt: skip
                self.debts.clear()
                yield self.emit("lock.acquired", "acquired", fence=_told(lease), attempt=attempt)
                return Run(lease)
            case Busy() as busy:
                return (yield from self._busy(busy, patience))
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

    def _busy(self, busy: Busy, patience: float) -> Program[Ended | None]:
        caller = self._caller.at(busy.key)
        if (yield from handoff.reclaim(caller, busy.told)):
            return None
        if busy.by == "line":
            self.debts.append(handoff.sweep_line(caller))  # It is free: somebody must come.
        elif busy.by != "another" and self.job is not None:
            # A job never meets itself as contention: never acked, skipped or failed. A copy's end
            # is decided when the original ends; an elder that published its retry is about to.
            left = busy.remaining or 1.0 if busy.by == "publication" else 0.0
            delay = max(1.0, left) * (1 + self.luck() / 4)
            yield self.emit(
                "lock.duplicate", "requeued", busy.by, owner=busy.holder, **self._which(busy)
            )
            return PutBack(min(delay, self._longest()), self.job.carried)
        owner = busy.holder or "another program"
        yield self.emit("lock.contended", "contended", owner=owner, **self._which(busy))
        match self.rules.policy:
            case Skip(returns=value):
                return (yield from self._skip(busy, value))
            case Wait(then="skip"):
                return (yield from self._skip(busy, None))
            case HandOff() | Coalesce() | Requeue() as policy if self.job is not None:
                return (yield from self._later(self.job, policy, busy, patience))
            case HandOff() | Coalesce() | Requeue() | Wait() | Fail():
                return (yield from self._fail(busy))

    def _which(self, busy: Busy) -> dict[str, str]:
        return {"busy_key": busy.key} if self.ask.further else {}

    def _skip(self, busy: Busy, value: object) -> Program[Ended]:
        yield self.emit("job.skipped", "skipped", "contended", owner=busy.holder)
        if self.job is None:
            return Raise(errors.Skipped(busy.key, busy.holder))
        return Return(value)

    def _fail(self, busy: Busy) -> Program[Ended]:
        yield self.emit("job.failed", "contended", "contended", owner=busy.holder)
        return Raise(errors.Contended(busy.key, busy.holder, busy.remaining))

    def _later(
        self, job: Job, policy: HandOff | Coalesce | Requeue, busy: Busy, patience: float
    ) -> Program[Ended | None]:
        """Park the job, or put it back where there is no line; or its time is over."""
        carried = job.carried
        since = self.since_ms = carried.contended_since_ms or self.since_ms or busy.server_ms
        waited = (busy.server_ms - since) / 1000
        if waited >= policy.give_up_after or carried.verdict:
            yield self.emit("job.gave_up", "gave_up", "contention", owner=busy.holder)
            if policy.then == "skip":
                return Return(None)
            detail = f"contended for {waited:.0f} s, {carried.contentions} times put back or parked"
            return Raise(GaveUp(busy.key, "contention", detail))
        carried = replace(carried, contentions=carried.contentions + 1, contended_since_ms=since)
        if not self.ask.further and (not isinstance(policy, Requeue) or busy.waiting):
            shelved = job.shelve(carried)
            if shelved is not None:
                ends_ms = since + int(policy.give_up_after * 1000)
                return (yield from self._park(shelved, policy, ends_ms, busy, patience))
        spread = policy if isinstance(policy, Requeue) else requeue()
        delay = spread.delay(job.carried.contentions, self.luck(), self._longest())
        yield self.emit("job.requeued", "requeued", "contended", owner=busy.holder, delay=delay)
        return PutBack(min(delay, policy.give_up_after - waited), carried)

    def _park(
        self,
        shelved: Shelved,
        policy: HandOff | Coalesce | Requeue,
        ends_ms: int,
        busy: Busy,
        patience: float,
    ) -> Program[Ended | None]:
        most = policy.most if isinstance(policy, HandOff) else MOST
        group = self.ask.claimant.job_type if isinstance(policy, Coalesce) else ""
        durable = not isinstance(policy, Requeue) and policy.durable
        terms = Terms(ends_ms, most, self.ask.timeouts.retain, group, durable)
        try:
            place = yield from handoff.park(self.ask, shelved, terms, patience)
        except StoreUnavailable as error:
            return (yield from self._unavailable(error))
        match place:
            case "free":
                return None
            case "full":
                yield self.emit("job.failed", "contended", "line full", owner=busy.holder)
                detail = f"{most} jobs are parked already"
                return Raise(GaveUp(self.ask.lock_key, "line full", detail))
            case Place(position=position, superseded=older):
                yield self.emit("job.parked", "parked", owner=busy.holder, position=position)
                if older is not None:
                    self.debts.append(handoff.publish(self._caller, older))
                return Parked()

    def _longest(self) -> float:
        """How long the queue holds a message back without redelivering it, with room to spare."""
        visibility = None if self.job is None else self.job.visibility
        return float("inf") if visibility is None else visibility / 3

    def _superseded(self) -> Program[Ended]:
        yield self.emit("job.skipped", "skipped", "superseded")
        return Return(None)

    def _done(self, done: Done) -> Program[Ended]:
        if done.state == "superseded":
            return (yield from self._superseded())
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
            return (yield from self._lost(lease, LeaseLost(lease.key, lease.lost)))
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
            return (yield from self._lost(lease, lost))
        yield self.emit("job.ran", "ran")
        return Return(value)

    def _finish(self, lease: Lease, ending: Ending, result: str) -> Program[None]:
        self.owed = "release"  # Until it is settled; what is left of it must not wait for its TTL.
        finished = yield from programs.finish(
            lease, ending, self.ask.memory, result, self.event("lock.released"),
            ticket=self.ask.ticket, routes=self.routes,
        )  # fmt: skip
        for key, turn in zip(lease.fences, (finished.called, *finished.further), strict=False):
            if turn is not None:
                self.debts.append(handoff.pass_on(self._caller.at(key), turn))
        if not finished.reason:
            self.owed = None
        elif ending == "forget":
            self.owed = "forget"  # It gave up; the record must not look like a crash.
        lease.end()
        yield self.emit("lock.released", "released", fence=_told(lease))

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
        """A lease that ran out of time, not taken from us, need not block others for its TTL.

        Nor need what is left of several; but a child leaves to its parent what that holds.
        """
        rest = self.ask.further and lease.lost != "forked"
        self.owed = "release" if rest or lease.lost in _OUR_WORD else None

    def _lost(self, lease: Lease, lost: LeaseLost) -> Program[Ended]:
        self._owe(lease)
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
        return PutBack(delay, replace(carried, recoveries=carried.recoveries + 1, rank=0))

    # ------------------------------------------------------------------ what is told

    def event(
        self, name: str, result: str = "", reason: str = "", owner: str = "", **fields: object
    ) -> Event:
        """Make an event of this attempt."""
        ask = self.ask
        return Event(
            name=name,
            lock_key=ask.name,
            resource_id=self.resource_id,
            job_id=ask.claimant.job_id,
            lock_owner=owner or ask.claimant.described(),
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


def _told(lease: Lease) -> int | dict[str, int]:
    """What events tell as the fence: of several resources, that of each."""
    return dict(lease.fences) if len(lease.fences) > 1 else lease.fence
