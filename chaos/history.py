"""The history: one append-only file per process, one JSON line per event, one clock for all."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

Event: TypeAlias = Mapping[str, Any]


def clock() -> int:
    """Read the clock that all processes of this machine share and that freezes do not stop."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Recorder:
    """Appends events to this process' own file; a forked child gets a file of its own.

    A line is one `write` of a few hundred bytes, so neither a kill nor an exception that is
    thrown into the thread leaves half of one, and two threads need no lock.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._pid = 0
        self._file = -1
        self.process = ""

    def log(self, kind: str, **fields: object) -> None:
        """Write down what happened just now."""
        if self._pid != os.getpid():
            self._open()
        event = {"t": clock(), "p": self.process, "kind": kind, **fields}
        os.write(self._file, json.dumps(event).encode() + b"\n")

    def _open(self) -> None:
        pid = os.getpid()
        self.process = f"{self._name}.{pid}"
        path = self._folder / f"{self.process}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._pid = pid


def read(folder: Path) -> list[Event]:
    """Read all files of a folder, each in the order it was written."""
    return [
        event
        for path in sorted(folder.glob("*.jsonl"))
        for event in parse(path.read_bytes().split(b"\n"))
    ]


def parse(lines: Iterable[bytes]) -> list[Event]:
    """Read lines; what a kill left unfinished did not happen."""
    return [json.loads(line) for line in lines if line.endswith(b"}")]


def tells(folder: Path, marks: Iterable[bytes]) -> bool:
    """Say whether each of these texts stands somewhere in the history, without parsing it."""
    missing = set(marks)
    for path in folder.glob("*.jsonl"):
        if not missing:
            break
        text = path.read_bytes()
        missing -= {mark for mark in missing if mark in text}
    return not missing


def write(path: Path, events: Iterable[Event]) -> None:
    """Write a history to one file, to judge it again later."""
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
