"""What the demo's workers run: `celery -A giliran.demo.worker worker`, started by the demo only."""

from __future__ import annotations

import math
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from celery import signals

from giliran import INJECTED, Event, Giliran, Lease, requeue
from giliran.adapters.celery import CeleryQueue
from giliran.demo import ledger
from giliran.demo.broker import TASK, make_app
from giliran.demo.journal import Journal, Kind, Note

TTL = 1.0
URL = os.environ["GILIRAN_DEMO_URL"]
BOOKS = Path(os.environ["GILIRAN_DEMO_BOOKS"])

app = make_app(URL)
journal = Journal(Path(os.environ["GILIRAN_DEMO_JOURNAL"]))
_bodies = 0
_body = ""  # The run of the task that this process is in, or was in last,
_lease: Lease | None = None  # and its lease.


def _note_losses(event: Event) -> None:
    if event.name == "lock.lost":
        journal.write(Note(kind="lost", body=_body, trusted_until=_trusted_until()))


def _trusted_until() -> float:
    return math.inf if _lease is None else _lease.trusted_until


turns = Giliran(URL, queues=[CeleryQueue(app)], listeners=[_note_losses])
guard = turns.exclusive(
    "lock:order:{order_id}",
    ttl=TTL,
    idempotency_key="refund:{refund_id}",
    on_contention=requeue(base=0.1, cap=1, give_up_after=120),
)


@contextmanager
def _noted(
    order_id: int, refund_id: str, lease: Lease | None
) -> Generator[Callable[[], None], None, None]:
    """Note when a body begins, pays (call what is given) and ends."""
    global _bodies, _body, _lease  # noqa: PLW0603  one body at a time in a prefork child
    _bodies += 1
    _body, _lease = f"{os.getpid()}-{_bodies}", lease

    def note(kind: Kind) -> None:
        told = Note(
            kind=kind,
            body=_body,
            order_id=order_id,
            refund_id=refund_id,
            trusted_until=_trusted_until(),
        )
        journal.write(told)

    note("begun")
    try:
        yield lambda: note("paid")
    finally:
        note("ended")


def _work(refund_id: str, part: str) -> None:
    """Be busy for a while, as with a payment provider; the same job is as slow every time."""
    time.sleep(random.Random(refund_id + part).uniform(0.015, 0.06))


def unguarded(order_id: int, refund_id: str, amount: int) -> None:
    """Refund as a plain task does it: read, work, write."""
    with _noted(order_id, refund_id, None) as paid, closing(ledger.connect(BOOKS)) as db:
        balance = ledger.read_balance(db, order_id)
        _work(refund_id, "before")
        ledger.pay_blindly(db, order_id, refund_id, amount, _body, balance)
        paid()
        _work(refund_id, "after")


@guard
def guarded(order_id: int, refund_id: str, amount: int, *, lease: Lease = INJECTED) -> None:
    """Refund under the guard, with fence and unique id checked by the books."""
    with _noted(order_id, refund_id, lease) as paid, closing(ledger.connect(BOOKS)) as db:
        _work(refund_id, "before")
        try:
            ledger.apply_refund(db, order_id, refund_id, amount, lease.fence)
        except ledger.StaleFence:
            lease.check()  # A zombie learns here that it is one, and the job is put back.
            raise
        paid()
        _work(refund_id, "after")


@guard
def redis_record(order_id: int, refund_id: str, amount: int, *, lease: Lease = INJECTED) -> None:
    """Refund under the guard alone: only the record in Redis knows that it happened."""
    with _noted(order_id, refund_id, lease) as paid, closing(ledger.connect(BOOKS)) as db:
        _work(refund_id, "before")
        lease.check()
        ledger.pay_blindly(
            db, order_id, refund_id, amount, _body, ledger.read_balance(db, order_id)
        )
        paid()
        _work(refund_id, "after")


MODES = {"unguarded": unguarded, "guarded": guarded, "redis_record": redis_record}
app.task(name=TASK)(MODES[os.environ["GILIRAN_DEMO_MODE"]])


def _received(request: Any, **_: object) -> None:
    journal.write(Note(kind="received", tag=str(request.message.delivery_tag)))


def _ready(**_: object) -> None:
    journal.write(Note(kind="ready"))


def _die_with_the_demo(**_: object) -> None:
    """End this worker and its children when the demo is gone, however it went."""

    def watch() -> None:
        # The demo holds the other end, and writes nothing. Not through sys.stdin: a child that is
        # forked meanwhile would find its lock taken.
        os.read(0, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


signals.task_received.connect(_received)
signals.worker_ready.connect(_ready)
signals.worker_init.connect(_die_with_the_demo)
