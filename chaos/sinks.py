"""What the jobs change: a ledger that shares its transaction with fence check and unique key."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

_SCHEMA = """
CREATE TABLE fences (resource TEXT PRIMARY KEY, fence INTEGER NOT NULL);
CREATE TABLE once (effect TEXT PRIMARY KEY);
CREATE TABLE ledger (seq INTEGER PRIMARY KEY AUTOINCREMENT, resource TEXT, effect TEXT,
                     fence INTEGER, token TEXT);
"""

Written = Literal["effect", "fenced", "repeated"]


class Ledger:
    """The transactional sink. Only `ledger` is judged; the other tables are what guards it."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=20, isolation_level=None)
        # A killed process loses nothing that it wrote; only a power cut would.
        self._db.execute("PRAGMA synchronous=OFF")

    @staticmethod
    def create(path: Path) -> None:
        """Make the file."""
        db = sqlite3.connect(path)
        db.execute("PRAGMA journal_mode=WAL")
        db.executescript(_SCHEMA)
        db.close()

    def write(self, resource: str, effect: str, fence: int, token: str) -> Written:
        """Take effect once, unless a later holder of the resource has written before."""
        if self._db.in_transaction:  # An interrupt may have struck between two statements.
            self._db.rollback()
        self._db.execute("BEGIN IMMEDIATE")
        try:
            answer = self._write(resource, effect, fence, token)
        except BaseException:
            self._db.rollback()
            raise
        self._db.execute("COMMIT" if answer == "effect" else "ROLLBACK")
        return answer

    def _write(self, resource: str, effect: str, fence: int, token: str) -> Written:
        told = self._db.execute(
            "INSERT INTO fences VALUES (?1, ?2) ON CONFLICT (resource) DO UPDATE"
            " SET fence = ?2 WHERE fence <= ?2",
            (resource, fence),
        )
        if not told.rowcount:
            return "fenced"
        told = self._db.execute("INSERT OR IGNORE INTO once VALUES (?)", (effect,))
        if not told.rowcount:
            return "repeated"
        self._db.execute(
            "INSERT INTO ledger (resource, effect, fence, token) VALUES (?, ?, ?, ?)",
            (resource, effect, fence, token),
        )
        return "effect"

    def rows(self) -> Iterator[tuple[int, str, str, int, str]]:
        """Read the ledger in the order it was written."""
        yield from self._db.execute(
            "SELECT seq, resource, effect, fence, token FROM ledger ORDER BY seq"
        )

    def close(self) -> None:
        """Close the file."""
        self._db.close()
