"""A process that has imported everything, and forks workers on command.

Only it reaps the workers and only it signals them, so a signal never hits a stranger who got the
number of a dead one. When the program that started it ends, so do the workers and then it.

Orders and answers are JSON lines on one socket: {"fork": [name, url, folder]} is answered by
{"forked": pid}, {"signal": [name, number]} by {"sent": true or false}; {"ended": name} may come
at any time.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from chaos import worker

_PR_SET_PDEATHSIG = 1


class Zygote:
    """The parent of all workers; one thread, so that its children are whole."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._pids: dict[str, int] = {}
        self._woken, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    def main(self) -> None:
        """Serve until the other end of the socket is closed."""
        orders = b""
        try:
            while True:
                ready = select.select([self._line.fileno(), self._woken], [], [])[0]
                if self._woken in ready:
                    os.read(self._woken, 4096)
                    self._reap()
                if self._line.fileno() in ready:
                    data = self._line.recv(65536)
                    if not data:
                        return
                    *lines, orders = (orders + data).split(b"\n")
                    for line in lines:
                        self._obey(json.loads(line))
        finally:
            for pid in self._pids.values():
                os.kill(pid, signal.SIGKILL)

    def _obey(self, order: dict[str, Any]) -> None:
        if "fork" in order:
            self._answer({"forked": self._fork(*order["fork"])})
            return
        name, number = order["signal"]
        pid = self._pids.get(name)
        if pid is not None:
            os.kill(pid, number)
        self._answer({"sent": pid is not None})

    def _fork(self, name: str, url: str, folder: str) -> int:
        pid = os.fork()
        if pid:
            self._pids[name] = pid
            return pid
        code = 1
        try:
            self._line.close()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            worker.main(name, url, folder)()
            code = 0
        except BaseException:
            # A worker that falls over is a finding, wherever it does so.
            path = Path(folder) / f"{name}.crash"
            path.write_text(traceback.format_exc())
        finally:
            os._exit(code)

    def _reap(self) -> None:
        for name, pid in list(self._pids.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del self._pids[name]
                self._answer({"ended": name})

    def _answer(self, answer: dict[str, Any]) -> None:
        self._line.sendall(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    Zygote(socket.socket(fileno=int(sys.argv[1]))).main()
