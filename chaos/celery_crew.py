"""Celery workers with their prefork children, each worker with its own line to the locks."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from giliran.testing._proxy import FaultProxy

CHILDREN = 3
_PATIENCE = 10.0


class CeleryWorker:
    """A place for one worker, and its way to the locks; the broker it reaches directly."""

    def __init__(self, name: str, port: int, folder: Path) -> None:
        self.name = name
        self.proxy = FaultProxy(port)
        self._broker = f"redis://127.0.0.1:{port}/0"
        self._folder = folder
        self._lives = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] = (folder / f"{name}.log").open("ab")

    def start(self) -> None:
        """Start the worker."""
        name = f"{self.name}-{next(self._lives)}"
        command = [
            sys.executable, "-m", "celery", "-A", "chaos.celery_app", "worker", "-P", "prefork",
            "-c", str(CHILDREN), "-n", f"{name}@chaos", "--loglevel", "ERROR",
            "--without-gossip", "--without-mingle", "--without-heartbeat",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command,
            cwd=Path(__file__).parent.parent,
            env={
                **os.environ,
                "CHAOS_BROKER": self._broker,
                "CHAOS_STORE": self.proxy.url,
                "CHAOS_FOLDER": str(self._folder),
                "CHAOS_NAME": name,
                "TMPDIR": str(self._folder),  # A killed worker leaves folders behind.
            },
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    @property
    def lives(self) -> bool:
        """Whether the worker runs."""
        return self._process is not None and self._process.poll() is None

    def children(self) -> list[int]:
        """Find the children that run jobs."""
        if self._process is None:
            return []
        pid = self._process.pid
        with contextlib.suppress(OSError):
            return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return []

    def kill(self) -> None:
        """Kill the worker and its children, all at once."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def retire(self) -> None:
        """Ask the worker to end when its jobs are done."""
        if self._process is not None:
            self._process.terminate()

    def close(self) -> None:
        """End all that belongs to it."""
        self.kill()
        self.proxy.close()
        self._log.close()


class CeleryCrew:
    """All workers, from the first `refill` to `close`."""

    def __init__(self, size: int, port: int, folder: Path) -> None:
        self.slots = [CeleryWorker(f"c{number}", port, folder) for number in range(1, size + 1)]
        self._refilling = True

    def close(self) -> None:
        """End all workers at once."""
        for worker in self.slots:
            worker.close()

    def refill(self) -> None:
        """Start a worker wherever none lives."""
        for worker in self.slots:
            if self._refilling and not worker.lives:
                worker.start()

    def retire(self) -> None:
        """Let all workers finish and end."""
        self._refilling = False
        for worker in self.slots:
            worker.retire()
        ends = time.monotonic() + _PATIENCE
        while any(worker.lives for worker in self.slots) and time.monotonic() < ends:
            time.sleep(0.05)
        for worker in self.slots:
            worker.kill()
