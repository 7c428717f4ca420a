"""Do the durations of a guard and of its queue fit each other? Asked before the first job runs.

`check` compares what was said on the decorator with the limits of one kind of job, and answers in
findings: what does not fit, in numbers, why that matters, and how to put it right. An *error*
breaks a promise for certain; a *warning* depends on how long jobs run, or on who dies when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from giliran.findings import Finding, Severity
from giliran.policies import Coalesce, HandOff, Requeue, Wait

if TYPE_CHECKING:
    from giliran.guard import Guard
    from giliran.limits import Limits


def check(guard: Guard, limits: Limits) -> list[Finding]:
    """Compare a guard with its queue's limits; an empty list means that they fit."""
    case = _Case(guard, limits)
    return [finding for rule in RULES for finding in rule(case)]


# ---------------------------------------------------------------------- what the rules look at


@dataclass(frozen=True, slots=True)
class _Window:
    """How long a message may stay unacknowledged, and what happens then."""

    code: str
    words: str
    seconds: float
    read: bool
    harm: str

    def __str__(self) -> str:
        return f"{self.words} is {_s(self.seconds)}{'' if self.read else ' (assumed)'}"


class _Case:
    """One guard under the limits of one queue."""

    def __init__(self, guard: Guard, limits: Limits) -> None:
        self.limits, self.words = limits, limits.words
        self.options = options = guard.options
        self.idempotent = guard.idempotency_key is not None
        policy = options.policy
        self.parks = policy if isinstance(policy, HandOff | Coalesce) else None
        self.comes_back = self.parks is not None or isinstance(policy, Requeue)
        self.wait = options.policy.budget if isinstance(options.policy, Wait) else 0.0
        self.hold = options.timeouts(limits.hard_limit, options.retain).max_hold
        self.hard = limits.hard_limit if limits.hard_enforced else None
        self.soft = limits.soft_limit if limits.soft_enforced else None
        self.told = self.hard is None or self.wait + self.hold < self.hard  # Before it is killed.
        # How long a job may keep its worker's slot.
        self.slot = min(self.wait + self.hold, self.hard or float("inf"))

    def found(self, severity: Severity, code: str, what: str, why: str, fix: str) -> Finding:
        return Finding(severity, code, self.limits.subject, what, why, fix)

    @property
    def visibility(self) -> _Window | None:
        limits = self.limits
        if limits.visibility is None:
            return None
        harm = (
            "the queue then delivers a copy while the first is still there; the copy is "
            "recognised and does not run, but what follows in a chain may be sent twice"
        )
        words = self.words.visibility
        return _Window("visibility", words, limits.visibility, limits.visibility_read, harm)

    def windows(self, *, extended: bool) -> Iterator[_Window]:
        """Answer what ends a message's stay in a worker, unless the worker pushes it out."""
        limits, words = self.limits, self.words
        if self.visibility and not extended:
            yield self.visibility
        if limits.ack_timeout is not None:
            read = limits.ack_timeout_read
            yield _Window("ack-timeout", words.ack_timeout, limits.ack_timeout, read, words.cut_off)

    @property
    def longest(self) -> str:
        """How long a job may keep its slot, and where that number comes from."""
        if self.slot < self.wait + self.hold:
            return f"{_s(self.slot)} ({self.words.hard_limit})"
        hold = "max_hold" if self.options.max_hold is not None else "the default max_hold"
        wait = f"a wait of {_s(self.wait)} and " if self.wait else ""
        return f"{_s(self.slot)} ({wait}{hold})"


def _s(duration: float) -> str:
    return f"{duration:.10g} s"


Rule: TypeAlias = Callable[[_Case], Iterator[Finding]]


# ---------------------------------------------------------------------- unacknowledged too long


def _ttl_beyond_visibility(case: _Case) -> Iterator[Finding]:
    window, ttl = case.visibility, case.options.ttl
    if window and case.limits.late_ack and not case.limits.extended and ttl >= window.seconds:
        yield case.found(
            "warning",
            "ttl-beyond-visibility",
            f"ttl={_s(ttl)} and {window}",
            f"after a crash a copy comes within {_s(window.seconds)}, meets the lock of its dead "
            f"self for up to {_s(ttl)}, and is put back until then",
            f"ttl below {_s(window.seconds)}, since a running job renews it, or "
            f"{window.words} above {_s(ttl)}",
        )


def _hold_too_long(case: _Case) -> Iterator[Finding]:
    for window in case.windows(extended=case.limits.extended):
        if case.limits.late_ack and case.slot >= window.seconds:
            yield case.found(
                "warning",
                f"max-hold-beyond-{window.code}",
                f"a job may run for {case.longest} and {window}",
                window.harm,
                f"max_hold or {case.words.hard_limit} below {_s(window.seconds)}, or "
                f"{window.words} above {_s(case.slot)}",
            )


def _prefetched_too_long(case: _Case) -> Iterator[Finding]:
    limits, each = case.limits, case.words.prefetch
    stay = case.slot * (limits.prefetch or float("inf"))
    for window in case.windows(extended=limits.extended_waiting):
        told = limits.late_ack and case.slot >= window.seconds  # By `_hold_too_long`.
        if stay >= window.seconds and not told:
            enough = _s(window.seconds / (limits.prefetch or 1))
            yield case.found(
                "warning",
                f"prefetch-beyond-{window.code}",
                f"{each} is {limits.prefetch or 'unlimited'}, a job may run for {case.longest}, "
                f"what is reserved waits for those before it, and {window}",
                window.harm,
                f"{'' if limits.prefetch == 1 else f'{each} of 1, '}max_hold below {enough}, or "
                f"{window.words} above {_s(stay)}",
            )


def _delayed_too_long(case: _Case) -> Iterator[Finding]:
    """Only what the framework asks for: our own delays keep to a third of the window."""
    delay = case.limits.longest_delay
    for window in case.windows(extended=case.limits.extended_waiting):
        if delay is not None and delay >= window.seconds:
            certain = window.read and window.code == "visibility"
            yield case.found(
                "error" if certain else "warning",
                f"delay-beyond-{window.code}",
                f"a retry may ask for a delay of {_s(delay)} and {window}",
                f"a delayed message waits unacknowledged in a worker; {window.harm}",
                f"retry delays below {_s(window.seconds)}, or {window.words} above {_s(delay)}",
            )


def _forgotten_too_early(case: _Case) -> Iterator[Finding]:
    window, retain = case.visibility, case.options.retain
    if window and case.idempotent and case.limits.late_ack and retain <= window.seconds:
        yield case.found(
            "error" if window.read else "warning",
            "retain-within-visibility",
            f"retain={_s(retain)} and {window}",
            "a worker that dies between record and acknowledgement leaves a copy that comes "
            "after the record is gone: the effect happens twice",
            f"retain of at least {_s(2 * window.seconds)}",
        )


# ---------------------------------------------------------------------- time limits


def _hold_beyond_limit(case: _Case) -> Iterator[Finding]:
    if case.hard is not None and not case.told:
        wait = f"wait={_s(case.wait)}, " if case.wait else ""
        yield case.found(
            "warning",
            "max-hold-beyond-hard-limit",
            f"{wait}max_hold={_s(case.hold)} and {case.words.hard_limit} is {_s(case.hard)}",
            "the job is killed without being told; its lock blocks others for up to "
            f"ttl={_s(case.options.ttl)} more, and its effect is in doubt",
            f"ttl, max_hold and a wait that stay below {_s(case.hard)} together, or "
            f"{case.words.hard_limit} above {_s(case.wait + case.hold)}",
        )


def _wait_beyond_limit(case: _Case) -> Iterator[Finding]:
    limits = ((case.soft, case.words.soft_limit), (case.hard, case.words.hard_limit))
    beyond = [(seconds, words) for seconds, words in limits if seconds and case.wait >= seconds]
    if beyond:
        seconds, words = min(beyond)
        yield case.found(
            "warning",
            "wait-beyond-limit",
            f"wait={_s(case.wait)} and {words} is {_s(seconds)}",
            "a job is ended while it still waits, and its policy's own end is never reached",
            f"a wait well below {_s(seconds)}, or requeue()",
        )


def _soft_beyond_hard(case: _Case) -> Iterator[Finding]:
    soft, hard, words = case.limits.soft_limit, case.limits.hard_limit, case.words
    if soft is not None and hard is not None and soft >= hard:
        yield case.found(
            "error",
            "soft-limit-beyond-hard-limit",
            f"{words.soft_limit} is {_s(soft)} and {words.hard_limit} is {_s(hard)}",
            "the job is killed before it is asked to stop",
            f"{words.soft_limit} below {_s(hard)}, or none",
        )


def _ignored_limits(case: _Case) -> Iterator[Finding]:
    limits, words = case.limits, case.words
    ignored = [
        f"{name} is {_s(seconds)}"
        for name, seconds, enforced in (
            (words.hard_limit, limits.hard_limit, limits.hard_enforced),
            (words.soft_limit, limits.soft_limit, limits.soft_enforced),
        )
        if seconds is not None and not enforced
    ]
    if ignored:
        hangs = (
            f"a job that hangs keeps its slot for ever; its lease alone ends, after {case.longest}"
        )
        why = "a job is not asked to stop before it is killed" if case.hard else hangs
        yield case.found(
            "warning",
            "limits-ignored",
            f"{' and '.join(ignored)}, and {words.pool} ignores that",
            why,
            "a worker that enforces limits, or in their place a max_hold, which interrupts the job",
        )


def _returns_for_ever(case: _Case) -> Iterator[Finding]:
    ended = case.told and case.options.on_lost == "interrupt"
    if case.limits.returned and case.hard is not None and not ended and not case.idempotent:
        yield case.found(
            "warning",
            "timeout-comes-back",
            f"{case.words.returned}, and {case.words.hard_limit} is {_s(case.hard)}",
            "a job that always takes longer comes back for ever",
            f"max_hold below {_s(case.hard)} with on_lost='interrupt', so that the job fails "
            "first, or an idempotency_key, which counts attempts",
        )


# ---------------------------------------------------------------------- dead workers, busy ones


def _dies_with_worker(case: _Case) -> Iterator[Finding]:
    crash, words = case.limits.crash, case.words
    fix = f"{words.redelivery}; the guard keeps a second delivery from running twice"
    if crash == "lost" and (case.idempotent or case.comes_back):
        why = "a job whose worker dies is lost: it runs at most once, and nobody is told"
        yield case.found("warning", "crash-loses-job", words.early_ack, why, fix)
    if crash == "fail":
        why = "a job whose process is killed, as for want of memory, does not run again"
        yield case.found("warning", "crash-fails-job", words.no_redelivery, why, fix)


def _parked_not_durable(case: _Case) -> Iterator[Finding]:
    if case.parks and case.parks.durable and case.limits.appends is False:
        yield case.found(
            "error",
            "parked-not-durable",
            "contended jobs are parked in a Redis with appendonly no",
            "a parked job is nowhere else: it is lost if that server stops",
            "appendonly yes (with appendfsync always, to lose none at all), or durable=False",
        )


def _wait_blocks_worker(case: _Case) -> Iterator[Finding]:
    if case.wait and case.limits.concurrency == 1:
        yield case.found(
            "warning",
            "wait-blocks-worker",
            f"wait={_s(case.wait)} and this worker has 1 slot",
            f"nothing else runs here while a contended job waits, for up to {_s(case.wait)}",
            "requeue(), or a worker with more slots",
        )


RULES: tuple[Rule, ...] = (
    _ttl_beyond_visibility,
    _hold_too_long,
    _prefetched_too_long,
    _delayed_too_long,
    _forgotten_too_early,
    _hold_beyond_limit,
    _wait_beyond_limit,
    _soft_beyond_hard,
    _ignored_limits,
    _returns_for_ever,
    _dies_with_worker,
    _parked_not_durable,
    _wait_blocks_worker,
)
