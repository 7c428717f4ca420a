"""Watches the broker, to tell what Celery's own transport lost from what a guard lost.

kombu takes a message by BRPOP and notes it as unacked by a second command. A worker that is killed
between the two has the only copy. The server's MONITOR shows both sides: a message whose last
trace is its push, and which is not in the queue any more, was taken and never noted.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterable

from chaos.history import Recorder

_TAG = re.compile(r'\\?"delivery_tag\\?": ?\\?"([0-9a-f-]{36})')
_JOB = re.compile(r'\\?"id\\?": ?\\?"([0-9a-f-]+)')


class Watch:
    """Follows every message from its push to its note, in a thread of its own."""

    def __init__(self, port: int) -> None:
        # A bare socket: a client library would reconnect after a quiet spell, and not monitor.
        self._line = socket.create_connection(("127.0.0.1", port))
        self._line.settimeout(0.5)
        self._ending = threading.Event()
        self._pushed: dict[str, str] = {}
        self._thread = threading.Thread(target=self._main, name="chaos-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._ending.set()
        self._thread.join()
        self._line.close()

    def see(self, command: str) -> None:
        """Take one command that the server has carried out."""
        tag = _TAG.search(command)
        if tag is None:
            return
        word = command.partition(" ")[0].strip('"').upper()
        if word in ("LPUSH", "RPUSH"):
            job = _JOB.search(command)
            self._pushed[tag[1]] = job[1] if job else ""
        elif word == "HSET":
            self._pushed.pop(tag[1], None)

    def open(self) -> set[str]:
        """Answer the jobs that were pushed and not noted since."""
        return set(self._pushed.values())

    def tell(self, waiting: Iterable[str], recorder: Recorder) -> None:
        """Write down the jobs that were taken and never noted; `waiting` are still queued."""
        for job in sorted(self.open().difference(waiting)):
            recorder.log("never noted", job=job)

    def _main(self) -> None:
        self._line.sendall(b"MONITOR\r\n")
        seen = b""
        while not self._ending.is_set():
            with contextlib.suppress(TimeoutError):
                data = self._line.recv(65536)
                if not data:
                    return
                *lines, seen = (seen + data).split(b"\r\n")
                for line in lines:
                    self.see(line.decode("utf-8", "replace").partition("] ")[2])
