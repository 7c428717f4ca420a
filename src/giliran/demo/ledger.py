"""The books of the demo's shop, in SQLite: orders, and what was paid back on them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

START = 1_000_000
PATIENCE = 30.0

_SCHEMA = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL);
CREATE TABLE refunds (id TEXT PRIMARY KEY, order_id INTEGER NOT NULL, amount INTEGER NOT NULL);
CREATE TABLE payouts (
    refund_id TEXT NOT NULL, order_id INTEGER NOT NULL, amount INTEGER NOT NULL, body TEXT NOT NULL
);
"""


class StaleFence(Exception):
    """A later holder of the order has been here; nothing was written."""


def apply_refund(
    db: sqlite3.Connection, order_id: int, refund_id: str, amount: int, fence: int
) -> bool:
    """Refund once, in one transaction; True if it is new. A zombie's write is refused."""
    with db:  # Commits all of it, or none.
        db.execute("BEGIN IMMEDIATE")
        turn = db.execute(
            "UPDATE orders SET fence = ? WHERE id = ? AND fence <= ?", (fence, order_id, fence)
        )
        if turn.rowcount == 0:
            raise StaleFence(f"order {order_id} has seen a later holder than {fence}")
        new = db.execute(
            "INSERT INTO refunds VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
            (refund_id, order_id, amount),
        )
        if new.rowcount == 1:
            db.execute("UPDATE orders SET balance = balance - ? WHERE id = ?", (amount, order_id))
    return new.rowcount == 1


def read_balance(db: sqlite3.Connection, order_id: int) -> int:
    """Read what is left of an order."""
    (balance,) = db.execute("SELECT balance FROM orders WHERE id = ?", (order_id,)).fetchone()
    return int(balance)


def pay_blindly(
    db: sqlite3.Connection, order_id: int, refund_id: str, amount: int, body: str, balance: int
) -> None:
    """Refund in one transaction that checks nothing: neither the refund's id nor the fence.

    Args:
        db: the books.
        order_id: the order.
        refund_id: the refund.
        amount: what is paid back.
        body: which run of the task does it.
        balance: the order's balance as it was read before.
    """
    with db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO payouts VALUES (?, ?, ?, ?)", (refund_id, order_id, amount, body))
        db.execute("UPDATE orders SET balance = ? WHERE id = ?", (balance - amount, order_id))


def connect(path: Path) -> sqlite3.Connection:
    """Open the books; transactions begin where the code says so."""
    return sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)


def create(path: Path, orders: Iterable[int]) -> None:
    """Make new books in which every order has the same balance."""
    with closing(connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(_SCHEMA)
        with db:
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO orders VALUES (?, ?, 0)", [(n, START) for n in orders])


@dataclass(frozen=True, slots=True)
class Books:
    """What the books say in the end.

    Attributes:
        effects: the refund of every payment, repeats included.
        bodies: the runs that paid, if they wrote themselves down.
        paid: what is gone from the balances.
    """

    effects: tuple[str, ...]
    bodies: frozenset[str]
    paid: int


def read(path: Path) -> Books:
    """Read the books."""
    with closing(connect(path)) as db:
        refunds = db.execute("SELECT id FROM refunds").fetchall()
        payouts = db.execute("SELECT refund_id, body FROM payouts").fetchall()
        (paid,) = db.execute("SELECT SUM(? - balance) FROM orders", (START,)).fetchone()
    effects = (*(name for (name,) in refunds), *(name for name, _ in payouts))
    return Books(effects, frozenset(body for _, body in payouts), paid)
