"""`with` and `async with`: hold a resource for a stretch of code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from giliran.attempt import Attempt
from giliran.errors import LeaseInterrupt
from giliran.guard import OnLost
from giliran.interrupt import Interrupter
from giliran.lease import Lease
from giliran.term import Term, ainterrupter, interrupter
from giliran.verdicts import Ended, Raise, Raised, Returned, Run


class Hold:
    """Made by `Giliran.hold`; good for any number of entries, one after the other.

    Python checks for interrupts when it calls `__exit__`, before anything there can catch one: a
    thread whose lease is lost at that very instant sees `LeaseInterrupt` itself, not `LeaseLost`.
    A guarded function has no such gap.
    """

    def __init__(
        self, attempt: Callable[[], Attempt], term: Callable[[Attempt], Term], on_lost: OnLost
    ) -> None:
        self._attempt = attempt
        self._make_term = term
        self._on_lost = on_lost
        self._entered: tuple[Term, Lease] | None = None

    def __enter__(self) -> Lease:
        """Hold the resource, or raise `Contended`."""
        term = self._new_term()
        verdict = term.open()
        try:
            return self._begin(term, verdict, lambda: interrupter(self._on_lost, term.attempt))
        except LeaseInterrupt as interrupt:  # Lost before the block began: nothing leaves it.
            if self._entered is not None:
                self.__exit__(LeaseInterrupt, interrupt, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give the resource back; the body's own error always wins."""
        outcome = error
        try:
            term, lease = self._stop()
        except BaseException as cut:  # An interrupt or a time limit arrived on the way out.
            term, lease = self._stop()
            outcome = error or cut
        self._entered = None
        _raise_other(term.close(lease, _outcome(outcome)), error)

    async def __aenter__(self) -> Lease:
        """Same as `__enter__`, awaited."""
        term = self._new_term()
        verdict = await term.aopen()
        return self._begin(term, verdict, lambda: ainterrupter(self._on_lost))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Same as `__exit__`, awaited."""
        term, lease = self._stop()
        self._entered = None
        outcome = error
        if isinstance(error, asyncio.CancelledError):
            outcome = term.own_cancellation(lease, error)
        _raise_other(await term.aclose(lease, _outcome(outcome)), error)

    def _begin(self, term: Term, verdict: Run | Ended, choose: Callable[[], Interrupter]) -> Lease:
        if isinstance(verdict, Run):
            self._entered = term, verdict.lease
            term.begin(verdict.lease, choose())
            return verdict.lease
        term.end(verdict)
        raise AssertionError("a plain claim ends in a lease or an error")

    def _new_term(self) -> Term:
        if self._entered is not None:
            raise RuntimeError("this hold is entered already; make a new one for each block")
        return self._make_term(self._attempt())

    def _stop(self) -> tuple[Term, Lease]:
        if self._entered is None:
            raise RuntimeError("this hold was not entered")
        term, lease = self._entered
        term.stop(lease)
        return term, lease


def _outcome(error: BaseException | None) -> Returned | Raised:
    return Returned(None) if error is None else Raised(error)


def _raise_other(ended: Ended, error: BaseException | None) -> None:
    """Raise what the block ends in, unless it is the block's own error, which goes on by itself."""
    if isinstance(ended, Raise) and ended.error is not error:
        raise ended.error from error
