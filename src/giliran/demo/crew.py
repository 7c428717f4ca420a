"""The demo's workers: started, watched and ended by the process groups they lead."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

CHILDREN = 4
PATIENCE = 5.0


class WorkerDied(Exception):
    """A worker ended by itself; the message has the end of its log."""


class Crew:
    """Worker processes, each with a pool of children. Leaving the block ends all of them.

    Args:
        folder: where their logs go.
        size: how many workers.
        settings: environment variables for `giliran.demo.worker`.
    """

    def __init__(self, folder: Path, size: int, settings: dict[str, str]) -> None:
        self._folder = folder
        self._size = size
        self._settings = settings
        self._workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            for number in range(self._size):
                self._workers.append(self._start(number))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._end()

    def check(self) -> None:
        """Make sure that all workers run.

        Raises:
            WorkerDied: if one does not.
        """
        for worker in self._workers:
            if worker.poll() is not None:
                raise WorkerDied(f"a worker ended with {worker.returncode}\n{tail(self._folder)}")

    def owns(self, pid: int) -> bool:
        """Tell whether a process is a child of one of the workers."""
        with contextlib.suppress(ProcessLookupError):
            return os.getpgid(pid) in {worker.pid for worker in self._workers}
        return False

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "celery", "-A", "giliran.demo.worker", "worker"]
        command += ["--concurrency", str(CHILDREN), "--hostname", f"demo{number}@%h"]
        command += ["--loglevel", "INFO", "--without-gossip", "--without-mingle"]
        with (self._folder / f"worker{number}.log").open("wb") as log:
            return subprocess.Popen(
                command,
                cwd=self._folder,
                # Killed children leave temporary folders of billiard's; ours goes away as a whole.
                env={**os.environ, **self._settings, "TMPDIR": str(self._folder)},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which then ends its workers.
            )

    def _end(self) -> None:
        """Kill every process group: nothing is left to do for them, and polite ends take long."""
        for worker in self._workers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(worker.pid, signal.SIGKILL)
        for worker in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(PATIENCE)
            if worker.stdin is not None:
                worker.stdin.close()
        self._workers.clear()


def tail(folder: Path, lines: int = 15) -> str:
    """Answer the last lines of every log in a folder."""
    parts: list[str] = []
    for log in sorted(folder.rglob("*.log")):
        text = log.read_text("utf-8", "replace").splitlines()[-lines:]
        parts.append("\n".join([f"--- {log.parent.name}/{log.name}", *text]))
    return "\n".join(parts)
