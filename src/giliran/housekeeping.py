"""The second thread: work that nobody waits for, such as giving back an ambiguous claim."""

from __future__ import annotations

import logging
import queue
import threading

from giliran.drive import Driver
from giliran.errors import StoreUnavailable
from giliran.steps import Program, Sleep, Step

_log = logging.getLogger("giliran")
IDLE = 10.0
BACKLOG = 10_000


class Housekeeping:
    """Runs programs one after another in a thread that starts when needed and ends when idle."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.after_fork()

    def after_fork(self) -> None:
        """Start clean: a child owes nothing for its parent."""
        self._mutex = threading.Lock()
        self._work: queue.Queue[Program[None] | None] = queue.Queue(BACKLOG)
        self._thread: threading.Thread | None = None
        self._closing = False

    def submit(self, program: Program[None]) -> None:
        """Run a program soon. It must end by itself; one too many is dropped and logged."""
        with self._mutex:
            try:
                self._work.put_nowait(program)
            except queue.Full:
                _log.warning("housekeeping is %d programs behind; one was dropped", BACKLOG)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._main, name="giliran-housekeeping", daemon=True
                )
                self._thread.start()

    def close(self, timeout: float) -> None:
        """Try once more what was submitted, for at most `timeout` seconds, and end the thread."""
        with self._mutex:
            thread = self._thread
            if thread is not None:
                self._closing = True
                self._work.put(None)
        if thread is not None:
            thread.join(timeout)

    def _main(self) -> None:
        while True:
            try:
                program = self._work.get(timeout=IDLE)
            except queue.Empty:
                program = None
            if program is None:
                with self._mutex:
                    if self._work.empty():
                        self._thread = None
                        self._closing = False
                        return
                continue
            try:
                self._driver.run(self._until_closed(program))
            except Exception:  # The thread serves others too.
                _log.exception("a housekeeping program failed")

    def _until_closed(self, program: Program[None]) -> Program[None]:
        """Run a program, but no longer than to its next pause once the thread is to end."""
        try:
            step: Step = next(program)
            while not (self._closing and isinstance(step, Sleep)):
                try:
                    answer = yield step
                except StoreUnavailable as error:
                    step = program.throw(error)
                else:
                    step = program.send(answer)
        except StopIteration:
            return
