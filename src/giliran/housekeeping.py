"""The second thread: work that nobody waits for, such as giving back an ambiguous claim."""

from __future__ import annotations

import logging
import queue
import random
import threading
from collections.abc import Callable

from giliran.drive import Driver
from giliran.errors import NotPublished, StoreUnavailable
from giliran.steps import Program, Sleep, Step

_log = logging.getLogger("giliran")
IDLE = 10.0
EVERY = 1.0
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
        self._due = 0.0
        self._again: Callable[[], Program[None]] | None = None

    def repeat(self, make: Callable[[], Program[None]]) -> None:
        """Run a program of this kind about once a second from now on; one kind for each process."""
        if self._again is None and not self._closing:
            self._again, self._due = make, self._driver.clock() + EVERY
            self.submit(make())

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
            self._again = None
            if thread is not None:
                self._closing = True
                self._work.put(None)
        if thread is not None:
            thread.join(timeout)

    def _main(self) -> None:
        while True:
            program = self._next()
            if program is None:
                with self._mutex:
                    if self._work.empty():
                        self._thread = None
                        self._closing = False
                        return
                continue
            try:
                self._driver.run(self._until_closed(program))
            except StoreUnavailable as error:
                _log.debug("housekeeping goes on later: %s", error)
            except Exception:  # The thread serves others too.
                _log.exception("a housekeeping program failed")

    def _next(self) -> Program[None] | None:
        """Take what was submitted, and what repeats when it is due, however much there is to do."""
        again, pause = self._again, IDLE
        if again is not None:
            pause = self._due - self._driver.clock()
            if pause <= 0:
                # Spread, so that processes started together do not look at the same moment.
                self._due = self._driver.clock() + EVERY * random.uniform(0.7, 1.3)
                return again()
        try:
            return self._work.get(timeout=pause)
        except queue.Empty:
            return None if again is None else self._next()

    def _until_closed(self, program: Program[None]) -> Program[None]:
        """Run a program, but no longer than to its next pause once the thread is to end."""
        try:
            step: Step = next(program)
            while not (self._closing and isinstance(step, Sleep)):
                try:
                    answer = yield step
                except (StoreUnavailable, NotPublished) as error:
                    step = program.throw(error)
                else:
                    step = program.send(answer)
        except StopIteration:
            return
