"""A run on our own queue: start everything, do harm until it is enough, heal, look."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from chaos.audit import audit
from chaos.crew import Crew
from chaos.history import Recorder, tells
from chaos.jobs import TTL
from chaos.lines import Lines
from chaos.nemesis import Nemesis
from chaos.plan import BITTEN, Plan
from chaos.producer import Producer
from chaos.queue import RedisQueue, Unanswered
from chaos.sinks import Ledger
from giliran.embedded import EmbeddedServer
from giliran.testing._proxy import FaultProxy

WORKERS = 8
TICK = 0.02
QUIET_FOR = 1.0
QUIET_WITHIN = 60.0
SAYS_EVERY = 5.0
# What is parked is nowhere else: a server that is killed has to write it down before it answers.
SERVER_ARGS = {
    "no-loss": ("--appendonly", "yes", "--appendfsync", "always"),
    "loss": (),
}


def say(text: str) -> None:
    """Tell whoever watches."""
    sys.stderr.write(f"chaos: {text}\n")
    sys.stderr.flush()


def look_at_folder(folder: Path, recorder: Recorder) -> None:
    """Write down what the ledger holds, and which workers fell over by themselves."""
    ledger = Ledger(folder / "ledger.sqlite")
    for seq, resource, effect, fence, token in ledger.rows():
        recorder.log("row", seq=seq, res=resource, effect=effect, fence=fence, token=token)
    ledger.close()
    for path in sorted(folder.glob("*.crash")):
        recorder.log("crash", text=f"{path.stem}: {path.read_text()}")


class Soak:
    """One run. `done` says how much of the plan was reached."""

    def __init__(self, plan: Plan, folder: Path, stack: contextlib.ExitStack) -> None:
        self.plan = plan
        self._recorder = Recorder(folder, "main")
        self._folder = folder
        Ledger.create(folder / "ledger.sqlite")
        args = SERVER_ARGS[plan.profile]
        self._server = stack.enter_context(EmbeddedServer(args=args))
        port = self._server.port
        line = stack.enter_context(FaultProxy(port))
        self._crew = Crew(WORKERS, port, folder)
        stack.callback(self._crew.close)
        self._lines = Lines(port)
        stack.callback(self._lines.close)
        self._queue = RedisQueue(self._server.url)
        stack.callback(self._queue.close)
        sends = RedisQueue(line.url)
        stack.callback(sends.close)
        self._producer = Producer(sends, self._recorder, plan.seed)
        self._nemesis = Nemesis(self._crew, line, self._server, self._recorder, plan.clockwork())
        self._begun = time.monotonic()
        self._quiet_since = 0.0

    @property
    def done(self) -> Counter[str]:
        """How much has happened."""
        return Counter({**self._nemesis.counts, "job": self._producer.accepted})

    def run(self) -> None:
        """Do it all; what happened is in the folder."""
        self._fault()
        self._nemesis.heal()
        say("faults are over, waiting for quiet")
        if not self._wait(self._quiet, QUIET_WITHIN):
            say(f"not quiet after {QUIET_WITHIN:.0f} s")
        self._crew.retire()
        if not self._wait(lambda: not self._crew.working, 5.0):
            for slot in self._crew.slots:
                self._crew.signal(slot, signal.SIGKILL)
        time.sleep(TTL + 0.5)  # Locks of killed workers end by themselves: what is there stays.
        self._look()

    def _elapsed(self) -> float:
        return time.monotonic() - self._begun

    def _fault(self) -> None:
        says_at = 0.0
        while (elapsed := self._elapsed()) < self.plan.longest:
            if not self.plan.missing(self.done) and tells(self._folder, BITTEN):
                return
            self._crew.refill()
            self._nemesis.step(elapsed)
            with contextlib.suppress(*Unanswered):  # Not while the server is away.
                self._producer.step(self._queue.size() + self._lines.parked())
            if elapsed >= says_at:
                say(self.plan.progress(elapsed, self.done))
                says_at = elapsed + SAYS_EVERY
            time.sleep(TICK)

    def _wait(self, until: Callable[[], bool], seconds: float) -> bool:
        ends = time.monotonic() + seconds
        self._quiet_since = time.monotonic()
        while time.monotonic() < ends:
            self._crew.refill()
            with contextlib.suppress(*Unanswered):
                if until():
                    return True
            time.sleep(TICK)
        return False

    def _quiet(self) -> bool:
        """Nothing queued or in line for a while: two looks may miss what passes between."""
        if not (self._producer.finish() and self._queue.size() == 0 and self._lines.empty()):
            self._quiet_since = time.monotonic()
        return time.monotonic() - self._quiet_since > QUIET_FOR

    def _look(self) -> None:
        """Write down what is left: in the queue, in the ledger, on the server, of workers."""
        for message in self._queue.messages():
            self._recorder.log("left", job=message.job)
        look_at_folder(self._folder, self._recorder)
        audit(self._server.port, self._recorder)
