"""The workers as the nemesis sees them: slots, each with its proxy, refilled when one dies."""

from __future__ import annotations

import itertools
import json
import signal
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

from giliran.testing._proxy import FaultProxy

_PATIENCE = 10.0


class Slot:
    """A place for one worker at a time, and its way to the server."""

    def __init__(self, number: int, upstream_port: int) -> None:
        self.name = f"w{number}"
        self.proxy = FaultProxy(upstream_port)
        self.worker = ""
        self.frozen = False
        self._lives = itertools.count(1)

    def next_life(self) -> str:
        """Name the next worker in this slot."""
        self.worker = f"{self.name}-{next(self._lives)}"
        self.frozen = False
        return self.worker


class Crew:
    """All workers, by way of the zygote, from the first `refill` to `close`.

    Not for more than one thread.
    """

    def __init__(self, size: int, port: int, folder: Path) -> None:
        self._folder = folder
        self._ended: deque[str] = deque()
        self._buffer = b""
        self._line, theirs = socket.socketpair()
        with theirs:
            self._zygote = subprocess.Popen(
                [sys.executable, "-m", "chaos.zygote", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=Path(__file__).parent.parent,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the program, which then ends the zygote
            )
        self._line.settimeout(_PATIENCE)
        self.slots = [Slot(number, port) for number in range(1, size + 1)]
        self._refilling = True

    def close(self) -> None:
        """End the zygote, and with it all workers."""
        self._line.close()
        try:
            self._zygote.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._zygote.kill()
            self._zygote.wait()
        for slot in self.slots:
            slot.proxy.close()

    def signal(self, slot: Slot, number: signal.Signals) -> bool:
        """Signal the worker in a slot; False if it has just ended."""
        return bool(self._ask({"signal": [slot.worker, number]})["sent"])

    def refill(self) -> None:
        """Start a worker wherever none is."""
        self._line.settimeout(0)
        try:
            while (answer := self._read()) is not None:
                self._ended.append(answer["ended"])
        except BlockingIOError:
            pass
        finally:
            self._line.settimeout(_PATIENCE)
        while self._ended:
            name = self._ended.popleft()
            for slot in self.slots:
                if slot.worker == name:
                    slot.worker = ""
        for slot in self.slots:
            if self._refilling and not slot.worker:
                self._ask({"fork": [slot.next_life(), slot.proxy.url, str(self._folder)]})

    def retire(self) -> None:
        """Ask all workers to end, and start no others."""
        self._refilling = False
        for slot in self.slots:
            if slot.worker:
                self.signal(slot, signal.SIGTERM)

    @property
    def working(self) -> int:
        """How many workers there are."""
        return sum(bool(slot.worker) for slot in self.slots)

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        self._line.sendall(json.dumps(order).encode() + b"\n")
        while True:
            answer = self._read()
            if answer is None:
                raise RuntimeError("the zygote is gone")
            if "ended" not in answer:
                return answer
            self._ended.append(answer["ended"])

    def _read(self) -> dict[str, Any] | None:
        while b"\n" not in self._buffer:
            data = self._line.recv(65536)
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer
