"""Servers that tests start beside themselves, and that never outlive the run."""

from __future__ import annotations

import fcntl
import itertools
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

from tests.support.wait import wait_for

from giliran.embedded._home import make_home
from giliran.embedded._process import SupervisedServer
from giliran.embedded._server import _free_ports

READY = 50.0


class Supervised(ABC):
    """A server on free ports of 127.0.0.1, in a folder of its own, while the block lasts.

    The supervisor of the embedded servers ends its process group with the run, however that ends.
    """

    ports_wanted: ClassVar[int] = 1

    def __init__(self) -> None:
        self.home = make_home()
        self.ports = tuple(itertools.islice(_free_ports(), self.ports_wanted))
        self._process: SupervisedServer | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Write what the server needs into its folder, and return its command."""

    @abstractmethod
    def answers(self) -> bool:
        """Tell whether the server serves yet."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def start(self) -> None:
        """Start, and return when it serves; after `kill` with what it had written."""
        log = self.home / "log"
        with log.open("ab") as sink:
            # Whoever sweeps the folders of dead runs sees by this lock that the server lives.
            fcntl.flock(sink, fcntl.LOCK_SH)
            self._process = SupervisedServer(self.command(), self.home, sink)
        try:
            wait_for(self.answers, READY, f"{type(self).__name__} does not answer")
        except AssertionError as error:
            error.add_note(log.read_text(errors="replace")[-2000:])
            raise

    def kill(self) -> None:
        """Kill it with SIGKILL; its folder and its ports stay for the next `start`."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _remove(self) -> None:
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)


def with_environment(settings: dict[str, object], *command: str | Path) -> list[str]:
    """Return a command that runs with some variables set."""
    return ["/usr/bin/env", *(f"{name}={value}" for name, value in settings.items()),
            *map(str, command)]  # fmt: skip
