"""What the workers note while they run, and what the demo makes of it.

One file that every process appends whole lines to, so that a process killed at any moment leaves
a true picture behind. Times are those of the boot clock, which all processes share.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from giliran.drive import boot_clock

Kind: TypeAlias = Literal["ready", "received", "begun", "paid", "ended", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One line of the journal.

    Attributes:
        kind: what happened.
        at: when.
        tag: the delivery tag of a message that was received.
        body: which run of the task it is about.
        pid: the process that runs it.
        order_id: its order.
        refund_id: its refund.
        trusted_until: how long its lease was trusted as far as it knew then; unguarded for ever.
    """

    kind: Kind
    at: float = field(default_factory=boot_clock)
    tag: str = ""
    body: str = ""
    pid: int = field(default_factory=os.getpid)
    order_id: int = 0
    refund_id: str = ""
    trusted_until: float = math.inf


class Journal:
    """The writing end."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, note: Note) -> None:
        """Append a note, whole or not at all."""
        os.write(self._file, json.dumps(asdict(note)).encode() + b"\n")


@dataclass(slots=True)
class Body:
    """One run of the task, as far as it is known.

    Attributes:
        began: when it began.
        ended: when it ended or was killed; infinite while it runs.
        trusted_until: the last that is known of its lease.
        stalled: whether its lease ran out under it, as it does when the process stands still.
    """

    name: str
    pid: int
    order_id: int
    refund_id: str
    began: float
    trusted_until: float
    ended: float = math.inf
    stalled: bool = False


class History:
    """The reading end: all that was noted up to the last `read`."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open("rb")
        self._rest = b""
        self.ready: set[int] = set()
        self.received: Counter[str] = Counter()
        self.bodies: dict[str, Body] = {}
        self.paid: set[str] = set()
        self._running: dict[int, Body] = {}

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self) -> bool:
        """Take in what was noted since; True if that is anything."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            self._take(Note(**json.loads(line)))
        return bool(lines)

    def running(self) -> list[Body]:
        """Answer the bodies that have begun and not ended."""
        return list(self._running.values())

    def end(self, body: Body, at: float) -> None:
        """Note that a body was killed."""
        body.ended = at
        self._running.pop(body.pid, None)

    def _take(self, note: Note) -> None:
        match note.kind:
            case "ready":
                self.ready.add(note.pid)
            case "received":
                self.received[note.tag] += 1
            case "begun":
                self._begin(note)
            case "paid":
                self.paid.add(note.refund_id)
                self.bodies[note.body].trusted_until = note.trusted_until
            case "ended":
                self.bodies[note.body].trusted_until = note.trusted_until
                self.end(self.bodies[note.body], note.at)
            case "lost":
                # Lost earlier than that would not be the machine's fault, but ours.
                self.bodies[note.body].stalled = note.at >= note.trusted_until

    def _begin(self, note: Note) -> None:
        before = self._running.get(note.pid)
        if before is not None:  # Interrupted just where it would have noted its end.
            before.ended = note.at
        body = Body(note.body, note.pid, note.order_id, note.refund_id, note.at, note.trusted_until)
        self.bodies[body.name] = self._running[note.pid] = body
