"""The table at the end: a row for each broker, pool and acknowledgement, a column per scenario."""

from __future__ import annotations

import re

import pytest
from tests.adapters.celery.matrix.cells import ACKS, CELLS, COLUMNS, NOTES

_NODE = re.compile(r"::(\w+)\[(.+)\]")


class Table:
    """What the tests of the matrix said: ok, FAIL, or why there is nothing to show."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], str] = {}

    def enter(self, report: pytest.TestReport) -> None:
        """Take note of a test's report; setup and teardown count if they fail or skip."""
        match = _NODE.search(report.nodeid)
        if match is None or match[1] not in COLUMNS:
            return
        at = match[2], COLUMNS[match[1]]
        if report.failed:
            self._said[at] = "FAIL"
        elif report.skipped:
            self._said[at] = _reason(report)
        elif report.when == "call":
            self._said[at] = "ok"

    def lines(self) -> list[str]:
        """Write the table, and below it the reasons it points to."""
        reasons: dict[str, str] = {}
        rows = [["broker", "pool", "ack", *COLUMNS.values()]]
        for cell in CELLS:
            for ack in ACKS:
                said = [self._said.get((f"{cell}-{ack}", name), "") for name in COLUMNS.values()]
                if any(said):
                    words = [_short(word, reasons) for word in said]
                    rows.append([cell.kind, cell.pool, ack, *words])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = [
            "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        marked = [f"({mark}) {reason}" for reason, mark in reasons.items()]
        return [*table, "", *marked, *(f"{row}: {note}" for row, note in NOTES.items())]


def _reason(report: pytest.TestReport) -> str:
    skip = report.longrepr
    return str(skip[2] if isinstance(skip, tuple) else skip).removeprefix("Skipped: ")


def _short(word: str, reasons: dict[str, str]) -> str:
    if word in ("", "ok", "FAIL"):
        return word or "not run"
    return f"({reasons.setdefault(word, 'abcdefgh'[len(reasons)])})"
