"""The jobs that workers run, on any queue, and what they write down while they run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

from chaos.history import Recorder
from chaos.judgement import HASTE, RESOURCES
from chaos.sinks import Ledger
from giliran import INJECTED, Giliran, Lease, coalesce, hand_off, requeue
from giliran.events import Event

TTL = 1.0
MAX_HOLD = 10.0
RETAIN = 1800.0
SLICE = 0.04

_TOLD = frozenset(
    {
        "lock.lost", "lock.duplicate", "lock.contended", "lock.renew_failed", "job.replayed",
        "job.requeued", "job.stranded", "job.crashed", "job.gave_up", "job.parked", "job.called",
        "job.dead", "store.unavailable",
    }
)  # fmt: skip


class Refused(Exception):
    """What a body raises on purpose."""


class Diary:
    """Writes down what bodies do and what the library tells. A listener, too."""

    def __init__(self, recorder: Recorder) -> None:
        self._log = recorder.log

    def __call__(self, event: Event) -> None:
        """Write down what the library tells."""
        if event.name == "lock.acquired":
            fence: Any = event.fields["fence"]
            fences: dict[str, Any] = {event.lock_key: fence}
            if isinstance(fence, dict):
                fences = cast("dict[str, Any]", fence)
            for key, one in fences.items():
                self._log("grant", res=key, fence=one, job=event.job_id)
        elif event.name in _TOLD:
            self._log(
                "told",
                name=event.name,
                res=event.lock_key,
                job=event.job_id,
                pub=event.fields.get("publication", ""),
                how=event.result,
                why=event.reason,
            )

    def note(self, kind: str, lease: Lease, effect: str = "", sink: str = "") -> None:
        """Write down what a body does, and how far it trusts its lease just now.

        Of several resources there is a line for each; the effect is that of the first.
        """
        trusted, lost = lease.trusted_until, lease.lost
        timeouts = lease.timeouts
        for key, fence in list(lease.fences.items())[: 1 if sink else None]:
            self._log(
                kind,
                res=key,
                fence=fence,
                token=lease.token[:8],
                trusted=int(trusted * 1e9),
                asked=int((trusted - timeouts.ttl + timeouts.margin) * 1e9),
                lost=lost,
                effect=effect,
                sink=sink,
            )
            effect = ""

    def watch_log(self) -> None:
        """Write down every traceback that the library logs: there should be none."""
        handler = _Tracebacks(self._log)
        logger = logging.getLogger("giliran")
        logger.addHandler(handler)
        logger.setLevel(logging.ERROR)
        logger.propagate = False


class _Tracebacks(logging.Handler):
    def __init__(self, log: Callable[..., None]) -> None:
        super().__init__(logging.ERROR)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            text = logging.Formatter().formatException(record.exc_info)
            self._log("traceback", text=f"{record.getMessage()}\n{text}")


class Bodies:
    """What the guarded functions do.

    The ledger checks fence and unique key in the effect's own transaction; the plain sink is the
    history itself, and takes everything.
    """

    def __init__(self, diary: Diary, open_ledger: Callable[[], Ledger]) -> None:
        self._note = diary.note
        self._open_ledger = open_ledger
        self._ledger: Ledger | None = None

    def run(
        self, lease: Lease, work: Work, sink: Literal["ledger", "plain"], *, careful: bool = True
    ) -> str:
        """Work, take effect, and stay a little before the record; careless if told so."""
        try:
            self._note("begin", lease, work.effect)
            self._toil(lease, work.seconds)
            if careful:
                lease.check()
            if work.effect.startswith("refused:"):
                raise Refused
            written = self._write(lease, work.effect) if sink == "ledger" else "effect"
            self._note(written, lease, work.effect, sink)
            time.sleep(work.pause)
        finally:
            self._note("end", lease)
        return work.effect

    def _toil(self, lease: Lease, seconds: float) -> None:
        """Take the time of the body, and show from time to time how far the lease is trusted."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            time.sleep(min(left, SLICE))
            if seconds > 4 * SLICE:
                self._note("tick", lease)

    def _write(self, lease: Lease, effect: str) -> str:
        if self._ledger is None:
            self._ledger = self._open_ledger()
        return self._ledger.write(lease.key, effect, lease.fence, lease.token[:8])


@dataclass(frozen=True, slots=True)
class Work:
    """One job's arguments: it takes `seconds`, and `pause` between effect and record."""

    resource: str
    effect: str
    seconds: float
    pause: float


def beside(resource: str) -> str:
    """Name the lock of the resource next to one, which many other jobs want as well."""
    return f"lock:{resource[0]}{(int(resource[1:]) + 1) % RESOURCES}"


def make_jobs(turns: Giliran, bodies: Bodies) -> dict[str, Callable[..., Any]]:
    """Make the guarded functions, by name; those of `KEYED` have an idempotency key.

    Parked jobs are as durable as the server. That of the no-loss profile writes down what it is
    told before it answers (`SERVER_ARGS`); that of the other forgets on purpose, and `durable=True`
    would refuse it.
    """
    own = "lock:{resource}"
    exclusive: dict[str, Any] = {
        "key": own,
        "ttl": TTL,
        "max_hold": MAX_HOLD,
        "on_contention": requeue(base=0.05, cap=0.5, give_up_after=900),
        "recoveries": 200,
    }
    once: dict[str, Any] = {**exclusive, "idempotency_key": "{effect}", "retain": RETAIN}
    in_turn: dict[str, Any] = {**once, "on_contention": hand_off(durable=False)}
    in_haste = hand_off(give_up_after=HASTE, durable=False)
    hurried: dict[str, Any] = {**exclusive, "on_contention": in_haste}
    several = {name: value for name, value in exclusive.items() if name != "key"}
    merged: dict[str, Any] = {**exclusive, "on_contention": coalesce(durable=False)}

    @turns.exclusive(**once)
    def ledger(
        resource: str, effect: str, seconds: float, pause: float, *, lease: Lease = INJECTED
    ) -> str:
        return bodies.run(lease, Work(resource, effect, seconds, pause), "ledger")

    @turns.exclusive(**once, on_lost="flag")
    def blind(
        resource: str, effect: str, seconds: float, pause: float, *, lease: Lease = INJECTED
    ) -> str:
        # Never asks whether it may: the sink alone keeps its late writes out.
        return bodies.run(lease, Work(resource, effect, seconds, pause), "ledger", careful=False)

    @turns.exclusive(**once)
    def record(
        resource: str, effect: str, seconds: float, pause: float, *, lease: Lease = INJECTED
    ) -> str:
        return bodies.run(lease, Work(resource, effect, seconds, pause), "plain")

    @turns.exclusive(**exclusive)
    def plain(
        resource: str, effect: str, seconds: float, pause: float, *, lease: Lease = INJECTED
    ) -> str:
        return bodies.run(lease, Work(resource, effect, seconds, pause), "plain")

    @turns.exclusive(**in_turn)
    def in_line(
        resource: str, effect: str, seconds: float, pause: float, *, lease: Lease = INJECTED
    ) -> str:
        return bodies.run(lease, Work(resource, effect, seconds, pause), "ledger")

    @turns.exclusive(**hurried)
    def hasty(
        resource: str, effect: str, seconds: float, pause: float, *, lease: Lease = INJECTED
    ) -> str:
        return bodies.run(lease, Work(resource, effect, seconds, pause), "plain")

    @turns.exclusive(**merged)
    def newest(
        resource: str, effect: str, seconds: float, pause: float, *, lease: Lease = INJECTED
    ) -> str:
        return bodies.run(lease, Work(resource, effect, seconds, pause), "plain")

    @turns.exclusive([own, beside], **several)
    def pair(
        resource: str, effect: str, seconds: float, pause: float, *, lease: Lease = INJECTED
    ) -> str:
        return bodies.run(lease, Work(resource, effect, seconds, pause), "plain")

    jobs = (ledger, blind, record, plain, in_line, hasty, newest, pair)
    return {job.__name__: job for job in jobs}
