"""The shop's books in SQLite: they refuse what an earlier holder of an order writes too late."""

import os
import sqlite3
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from giliran import Event

BOOKS = Path(os.environ.get("EXAMPLE_BOOKS", Path(__file__).with_name("books.sqlite3")))
TOLD = {
    "job.requeued": "put back, the order was busy",
    "job.replayed": "answered from the record, did not run",
    "job.failed": "failed",
    "job.gave_up": "gave up",
}
SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (
    id TEXT PRIMARY KEY, balance INTEGER NOT NULL, state TEXT NOT NULL, fence INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS refunds (id TEXT PRIMARY KEY, order_id TEXT, amount INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS journal (at REAL NOT NULL, order_id TEXT, job TEXT, what TEXT NOT NULL);
"""


class StaleFence(Exception):
    """A later holder of the order has written already; nothing was changed."""


def connect() -> sqlite3.Connection:
    """Open the books, and make them if there are none."""
    db = sqlite3.connect(BOOKS, timeout=30, isolation_level=None)
    db.executescript(SCHEMA)
    return db


@contextmanager
def turn(order_id: str, fence: int) -> Generator[sqlite3.Connection]:
    """Change one order in one transaction, unless a later holder has done so before."""
    with closing(connect()) as db, db:  # Commits all of it, or none.
        db.execute("BEGIN IMMEDIATE")
        mine = db.execute(
            "UPDATE orders SET fence = ? WHERE id = ? AND fence <= ?", (fence, order_id, fence)
        )
        if mine.rowcount == 0:
            raise StaleFence(f"order {order_id} has seen a later holder than {fence}")
        yield db


def note(order_id: str, job: str, what: str) -> None:
    """Write a line into the journal of an order."""
    with closing(connect()) as db:
        db.execute("INSERT INTO journal VALUES (?, ?, ?, ?)", (time.time(), order_id, job, what))


def note_event(event: Event) -> None:
    """Write down what giliran decided about a job."""
    if event.name in TOLD:
        job = str(event.fields["job_type"]).rpartition(".")[2]
        note(event.resource_id.rpartition(":")[2], job, TOLD[event.name])


def journal(order_id: str) -> list[tuple[float, str, str]]:
    """Read what happened to an order: time, job, what."""
    query = "SELECT at, job, what FROM journal WHERE order_id = ? ORDER BY at"
    with closing(connect()) as db:
        return db.execute(query, (order_id,)).fetchall()
