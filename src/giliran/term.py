"""One term of a lease around one body, in a thread and in an asyncio task.

The two faces are written by hand because they are *not* the same: a thread is interrupted by an
exception, a task by its cancellation, and a release must not be cancelled with its task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Protocol

from giliran import programs
from giliran.attempt import Attempt
from giliran.beats import Beat
from giliran.drive import Driver
from giliran.errors import AlreadyHeld, LeaseInterrupt
from giliran.housekeeping import Housekeeping
from giliran.interrupt import Flag, Gate, Interrupter, TaskCancel, for_this_thread
from giliran.jobs import Job
from giliran.lease import Lease
from giliran.steps import Program
from giliran.verdicts import Ended, Parked, PutBack, Raise, Raised, Return, Returned, Run

_held: ContextVar[tuple[Lease, ...]] = ContextVar("giliran_held", default=())
PATIENCE = 5.0


def current_lease() -> Lease:
    """Answer the innermost lease that the running body holds.

    Raises:
        LookupError: outside of a guarded body.
    """
    for lease in reversed(_held.get()):
        if lease.active:
            return lease
    raise LookupError("no lease is held here: current_lease() is for guarded bodies")


def refuse_nested(lock_keys: tuple[str, ...]) -> None:
    """Raise `AlreadyHeld` if this very thread or task holds one of them; costs no round trip."""
    for lease in _held.get():
        for key in lock_keys:
            if key in lease.fences and lease.active and not lease.lost:
                raise AlreadyHeld(key)


class Keeper(Protocol):
    """What keeps leases: the heartbeat, or what plays it in a test."""

    @property
    def lock(self) -> Callable[[], Any]:
        """Make a mutex that works beside the keeper's thread."""
        ...

    def begin(self, lease: Lease, gate: Gate, program: Program[None]) -> Beat:
        """Keep a lease from now on."""
        ...

    def stop(self, beat: Beat) -> None:
        """Keep it no longer."""
        ...


class Term:
    """Claims, keeps and ends a lease for an attempt; both faces are made of it."""

    def __init__(
        self, attempt: Attempt, driver: Driver, keeper: Keeper, housekeeping: Housekeeping
    ) -> None:
        self.attempt = attempt
        self._driver = driver
        self._keeper = keeper
        self._housekeeping = housekeeping
        self._gate: Gate | None = None
        self._beat: Beat | None = None
        self._closing: asyncio.Task[Ended] | None = None

    # ------------------------------------------------------------------ shared

    def begin(self, lease: Lease, interrupter: Interrupter) -> None:
        """Start the heartbeat and let interrupts through."""
        _held.set((*_held.get(), lease))
        self._gate = Gate(interrupter, self._keeper.lock)
        self._beat = self._keeper.begin(
            lease, self._gate, programs.keep(lease, self.attempt.event("lock.acquired"))
        )

    def stop(self, lease: Lease) -> bool:
        """Stop the heartbeat, then any interrupt; True if the body was interrupted.

        An interrupt or a time limit may arrive in here; so what calls this then calls it again.
        """
        if self._beat is not None:
            self._keeper.stop(self._beat)
        _held.set(tuple(other for other in _held.get() if other is not lease))
        if self._gate is None or lease.lost == "forked":
            return False  # In a child the parent's gate may be locked for ever.
        self._gate.close()
        return self._gate.fired

    def _settle_debt(self) -> None:
        for program in self.attempt.settle():
            self._housekeeping.submit(program)

    def end(self, ended: Ended) -> object:
        """End the call as decided: with a value, an error, or back in the queue."""
        match ended:
            case Return(value=value):
                return value
            case Raise(error=error):
                raise error
            case PutBack():
                raise self._put_back(ended)
            case Parked():
                raise self._job.parked()

    @property
    def _job(self) -> Job:
        if self.attempt.job is None:
            raise AssertionError("a plain call cannot be put back")
        return self.attempt.job

    def _put_back(self, back: PutBack) -> BaseException:
        job = self._job
        try:
            return job.put_back(back.delay, back.carried)
        except Exception as error:
            reason = type(error).__name__
            self._driver.listener(self.attempt.event("job.stranded", "stranded", reason))
            return job.stranded(error)

    # ------------------------------------------------------------------ threads

    def open(self) -> Run | Ended:
        """Claim in this thread."""
        refuse_nested(self.attempt.ask.keys)
        try:
            return self._driver.run(self.attempt.open(PATIENCE))
        finally:
            self._settle_debt()

    def run(self, lease: Lease, body: Callable[[], object], interrupter: Interrupter) -> Ended:
        """Run the body under the lease in this thread, and settle."""
        outcome = self._outcome(lease, body, interrupter)
        return self.close(lease, outcome)

    def _outcome(
        self, lease: Lease, body: Callable[[], object], interrupter: Interrupter
    ) -> Returned | Raised:
        try:
            try:
                self.begin(lease, interrupter)
                lease.check()  # This process may have stood still since the claim was answered.
                return Returned(body())
            finally:
                self.stop(lease)
        except BaseException as error:
            self.stop(lease)  # An interrupt or a time limit may have arrived while stopping.
            return Raised(error)

    def close(self, lease: Lease, outcome: Returned | Raised) -> Ended:
        """Settle record and lease in this thread."""
        try:
            return self._driver.run(self.attempt.close(lease, outcome))
        finally:
            self._settle_debt()

    # ------------------------------------------------------------------ asyncio

    async def aopen(self) -> Run | Ended:
        """Same as `open`, awaited."""
        refuse_nested(self.attempt.ask.keys)
        try:
            return await self._driver.arun(self.attempt.open(PATIENCE))
        finally:
            self._settle_debt()

    async def arun(
        self, lease: Lease, body: Callable[[], Awaitable[object]], interrupter: Interrupter
    ) -> Ended:
        """Same as `run`, awaited."""
        outcome: Returned | Raised
        try:
            self.begin(lease, interrupter)
            lease.check()
            outcome = Returned(await body())
        except asyncio.CancelledError as error:
            outcome = Raised(self.own_cancellation(lease, error))
        except BaseException as error:
            outcome = Raised(error)
        finally:
            self.stop(lease)
        return await self.aclose(lease, outcome)

    def own_cancellation(self, lease: Lease, error: BaseException) -> BaseException:
        """Tell a cancellation that told of a loss from one that came from outside."""
        fired = self.stop(lease)
        task = asyncio.current_task()
        outside = task is not None and task.cancelling() > 0
        return LeaseInterrupt(lease.key) if fired and not outside else error

    async def aclose(self, lease: Lease, outcome: Returned | Raised) -> Ended:
        """Same as `close`, awaited; a cancellation from outside does not stop the release."""
        self._closing = asyncio.ensure_future(self._driver.arun(self.attempt.close(lease, outcome)))
        try:
            return await asyncio.shield(self._closing)
        finally:
            if self._closing.done():
                self._settle_debt()
            else:
                self._closing.add_done_callback(lambda _: self._settle_debt())


def interrupter(wanted: str, attempt: Attempt) -> Interrupter:
    """Choose how a body in this thread is interrupted."""
    if wanted == "flag":
        return Flag()
    return for_this_thread() if attempt.job is None else attempt.job.interrupter()


def ainterrupter(wanted: str) -> Interrupter:
    """Choose how a body in this task is interrupted."""
    return Flag() if wanted == "flag" else TaskCancel()


def carry_out(term: Term, body: Callable[[Lease], object], wanted: str) -> object:
    """Run a guarded call in this thread to its end: a value, or an error."""
    verdict = term.open()
    if not isinstance(verdict, Run):
        return term.end(verdict)
    lease = verdict.lease
    return term.end(term.run(lease, lambda: body(lease), interrupter(wanted, term.attempt)))


async def acarry_out(term: Term, body: Callable[[Lease], Awaitable[object]], wanted: str) -> object:
    """Same as `carry_out`, awaited."""
    verdict = await term.aopen()
    if not isinstance(verdict, Run):
        return term.end(verdict)
    lease = verdict.lease
    return term.end(await term.arun(lease, lambda: body(lease), ainterrupter(wanted)))
