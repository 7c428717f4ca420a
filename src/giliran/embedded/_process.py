"""A running server behind its supervisor."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_READY_SECONDS = 15.0
_GRACE_SECONDS = 5.0
_SUPERVISOR = Path(__file__).with_name("_supervisor.py")


class SupervisedServer:
    """A running server behind its supervisor."""

    def __init__(self, command: Sequence[str], home: Path, log: IO[bytes]) -> None:
        self.ready = False
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SUPERVISOR), str(os.getpid()), str(home), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,
            start_new_session=True,  # a Ctrl-C in the terminal is for the program, not for these
        )
        self.pid = int(self._hear(_READY_SECONDS) or 0)

    def answers(self, path: Path) -> bool:
        """Wait until the server answers on its socket file; False if it ends or stays silent."""
        # On the file, not on the port: there a stranger could answer who took the port first.
        # The server opens the port before the file.
        deadline = time.monotonic() + _READY_SECONDS
        while self.pid and time.monotonic() < deadline:
            if _answers(path):
                self.ready = True
                return True
            if self._supervisor.poll() is not None:
                break
            time.sleep(0.002)
        return False

    def order(self, number: signal.Signals) -> None:
        """Have a signal sent to the server, if it still runs."""
        if self._supervisor.stdin is None:
            raise AssertionError("the supervisor has an order pipe")
        with contextlib.suppress(BrokenPipeError):
            os.write(self._supervisor.stdin.fileno(), bytes([number]))
            self._hear(_GRACE_SECONDS)

    def end(self) -> None:
        """End the server with SIGTERM, after a while with SIGKILL."""
        self.order(signal.SIGTERM)
        self.order(signal.SIGCONT)
        try:
            self._supervisor.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.order(signal.SIGKILL)
        self._reap()

    def kill(self) -> None:
        """End the server with SIGKILL."""
        self.order(signal.SIGKILL)
        self._reap()

    def _reap(self) -> None:
        try:
            self._supervisor.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._supervisor.pid, signal.SIGKILL)
            self._supervisor.wait()
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            if pipe is not None:
                pipe.close()

    def _hear(self, seconds: float) -> bytes:
        if self._supervisor.stdout is None:
            raise AssertionError("the supervisor has a pipe to answer on")
        waiter = select.poll()  # not select(): a program may have more than 1024 files open
        waiter.register(self._supervisor.stdout, select.POLLIN)
        if not waiter.poll(seconds * 1000):
            return b""
        return os.read(self._supervisor.stdout.fileno(), 16)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as line, contextlib.suppress(OSError):
        line.settimeout(1.0)
        line.connect(str(path))
        line.sendall(b"PING\r\n")
        # An error is an answer too (a password is set), unless it still loads its file.
        return line.recv(64)[:5] not in (b"", b"-LOAD")
    return False
