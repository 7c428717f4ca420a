"""Kills and freezes that are certain to hit a running body."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from giliran.demo.journal import Body, History
from giliran.drive import boot_clock

STOPPING = 1.0


@dataclass(frozen=True, slots=True)
class Frozen:
    """A body whose process stands still."""

    body: Body
    thaw_at: float


class Faults:
    """Hits running bodies one after another as the work goes on.

    A process is stopped first, and only then it is looked up whether its body still runs. So
    every hit that is counted hit a running body.

    Args:
        history: tells which bodies run.
        owns: tells whether a process may be hit.
        luck: chooses.
        hits: what is to happen, in this order: "kill" or "freeze".
        freeze: how long a process stands still, in seconds.
        until: which part of the work is done when the last hit is due, from 0 to 1.
    """

    def __init__(
        self,
        history: History,
        owns: Callable[[int], bool],
        luck: random.Random,
        *,
        hits: Sequence[str],
        freeze: float,
        until: float = 0.6,
    ) -> None:
        self._history, self._owns, self._luck = history, owns, luck
        self._todo = list(hits)[::-1]
        self._planned = len(hits)
        self._freeze = freeze
        self._until = until
        self._frozen: list[Frozen] = []
        self.killed: list[Body] = []
        self.thawed: list[Body] = []

    @property
    def busy(self) -> bool:
        """Whether a process stands still."""
        return bool(self._frozen)

    @property
    def hits(self) -> int:
        """How often a running body was hit so far."""
        return len(self.killed) + len(self._frozen) + len(self.thawed)

    def step(self, progress: float) -> None:
        """Do what is due when this part of the work is done."""
        for frozen in list(self._frozen):
            if boot_clock() >= frozen.thaw_at:
                self._thaw(frozen)
        done = self._planned - len(self._todo)
        if self._todo and progress >= self._until * (done + 0.5) / self._planned:
            self._hit(self._todo[-1])

    def thaw_all(self) -> None:
        """Let every process go on."""
        for frozen in list(self._frozen):
            self._thaw(frozen)

    def _hit(self, how: str) -> None:
        still = {frozen.body.name for frozen in self._frozen} | {b.name for b in self.thawed}
        running = [body for body in self._history.running() if body.name not in still]
        if not running:
            return
        body = self._luck.choice(running)
        if not self._stop(body):
            return
        now = boot_clock()
        self._todo.pop()
        if how == "freeze":
            self._frozen.append(Frozen(body, now + self._freeze))
        else:
            _send(body.pid, signal.SIGKILL)
            self._history.end(body, now)
            self.killed.append(body)

    def _stop(self, body: Body) -> bool:
        """Stop the process in the middle of this body, or leave it alone."""
        if not self._owns(body.pid):
            return False
        _send(body.pid, signal.SIGSTOP)
        deadline = boot_clock() + STOPPING
        while not is_stopped(body.pid):
            if boot_clock() > deadline:
                _send(body.pid, signal.SIGCONT)
                return False
            time.sleep(0.001)
        self._history.read()
        if body in self._history.running():
            return True
        _send(body.pid, signal.SIGCONT)
        return False

    def _thaw(self, frozen: Frozen) -> None:
        self._frozen.remove(frozen)
        self._history.read()
        if frozen.body in self._history.running():
            self.thawed.append(frozen.body)
        _send(frozen.body.pid, signal.SIGCONT)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def is_stopped(pid: int) -> bool:
    """Tell whether a process stands still."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(") ")[2]
    except FileNotFoundError:  # No /proc, as on macOS.
        command = ["ps", "-o", "stat=", "-p", str(pid)]
        state = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return state.startswith("T")
