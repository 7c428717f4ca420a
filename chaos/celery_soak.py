"""A run on real Celery workers, under the same judge.

The broker is on the same server and is not killed. kombu takes messages by BRPOP and notes them as
unacked only afterwards, so what dies in between loses jobs whoever guards them: see `celery_watch`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from chaos.audit import audit
from chaos.celery_app import QUEUE, UNACKED, make_app
from chaos.celery_crew import CeleryCrew, CeleryWorker
from chaos.celery_watch import Watch
from chaos.faults import Faults
from chaos.history import Recorder, tells
from chaos.jobs import TTL
from chaos.lines import Lines
from chaos.plan import BITTEN, Clockwork, Plan
from chaos.producer import AT_ONCE, KEYED, OUTSTANDING, Order, accepted, draw
from chaos.queue import Message
from chaos.sinks import Ledger
from chaos.soak import QUIET_FOR, QUIET_WITHIN, SAYS_EVERY, SERVER_ARGS, TICK, look_at_folder, say
from giliran.adapters.celery import CeleryQueue
from giliran.embedded import EmbeddedServer
from giliran.testing._proxy import FaultProxy

WORKERS = 2


class CeleryNemesis(Faults):
    """Kills children and workers, freezes children, and cuts workers off from the locks."""

    def __init__(
        self, crew: CeleryCrew, server: EmbeddedServer, recorder: Recorder, clockwork: Clockwork
    ) -> None:
        super().__init__(server, recorder, clockwork)
        self._workers = crew.slots
        self.acts["kill child"] = self._kill_child
        self.acts["kill worker"] = self._kill_worker
        self.acts["freeze"] = self._freeze

    def line(self) -> tuple[str, FaultProxy]:
        """Choose a line to do harm to."""
        worker = self.luck.choice(self._workers)
        return worker.name, worker.proxy

    def _child(self) -> tuple[CeleryWorker, int] | None:
        worker = self.luck.choice(self._workers)
        children = worker.children()
        return (worker, self.luck.choice(children)) if children else None

    def _kill_child(self, elapsed: float) -> None:
        del elapsed
        chosen = self._child()
        if chosen is not None:
            os.kill(chosen[1], signal.SIGKILL)
            self.count("kill", of=f"{chosen[0].name} child {chosen[1]}")

    def _kill_worker(self, elapsed: float) -> None:
        del elapsed
        worker = self.luck.choice(self._workers)
        if worker.children():  # Else it is still starting.
            worker.kill()
            self.count("kill", of=worker.name)

    def _freeze(self, elapsed: float) -> None:
        chosen = self._child()
        if chosen is None:
            return
        worker, child = chosen
        os.kill(child, signal.SIGSTOP)
        self.count("freeze", of=f"{worker.name} child {child}")

        def thaw() -> None:
            if child in worker.children():
                os.kill(child, signal.SIGCONT)

        self.later(elapsed + self.luck.uniform(1.2, 2.5), thaw)


class CelerySoak:
    """One run. `done` says how much of the plan was reached."""

    def __init__(self, plan: Plan, folder: Path, stack: contextlib.ExitStack) -> None:
        self.plan = plan
        self._recorder = Recorder(folder, "main")
        self._folder = folder
        Ledger.create(folder / "ledger.sqlite")
        args = SERVER_ARGS[plan.profile]
        self._server = stack.enter_context(EmbeddedServer(args=args))
        self._app = make_app(self._server.url)
        stack.callback(self._app.close)
        self._watch = Watch(self._server.port)
        stack.callback(self._watch.close)
        CeleryQueue(self._app)  # Stamps what this process publishes.
        self._crew = CeleryCrew(WORKERS, self._server.port, folder)
        stack.callback(self._crew.close)
        self._lines = Lines(self._server.port)
        stack.callback(self._lines.close)
        self._client: Any = redis.Redis(port=self._server.port, decode_responses=True)
        stack.callback(self._client.close)
        self._nemesis = CeleryNemesis(self._crew, self._server, self._recorder, plan.clockwork())
        self._luck = random.Random(plan.seed + 1)
        self._orders: deque[Order] = deque()
        self._accepted = 0
        self._begun = time.monotonic()
        self._quiet_since = 0.0

    @property
    def done(self) -> Counter[str]:
        """How much has happened."""
        return Counter({**self._nemesis.counts, "job": self._accepted})

    def run(self) -> None:
        """Do it all; what happened is in the folder."""
        self._fault()
        self._nemesis.heal()
        say("faults are over, waiting for quiet")
        if not self._wait(self._quiet, QUIET_WITHIN):
            say(f"not quiet after {QUIET_WITHIN:.0f} s")
        self._crew.retire()
        time.sleep(TTL + 0.5)
        left = self._left()
        for job in left:
            self._recorder.log("left", job=job)
        self._watch.tell(left, self._recorder)
        look_at_folder(self._folder, self._recorder)
        audit(self._server.port, self._recorder)

    def _fault(self) -> None:
        says_at = 0.0
        while (elapsed := time.monotonic() - self._begun) < self.plan.longest:
            if not self.plan.missing(self.done) and tells(self._folder, BITTEN):
                return
            self._crew.refill()
            self._nemesis.step(elapsed)
            self._produce()
            if elapsed >= says_at:
                say(self.plan.progress(elapsed, self.done))
                says_at = elapsed + SAYS_EVERY
            time.sleep(TICK)

    def _produce(self) -> None:
        for _ in range(min(AT_ONCE, OUTSTANDING - self._outstanding())):
            if not self._orders:
                self._orders.extend(draw(self._luck))
            order = self._orders.popleft()
            # Celery stamps each message anew: without an idempotency key that is a second job.
            if not order.twin or order.message.task in KEYED:
                self._send(order.message)

    def _send(self, message: Message) -> None:
        self._app.send_task(f"chaos.{message.task}", kwargs=message.args, task_id=message.job)
        self._accepted += 1
        self._recorder.log("accepted", **accepted(message))

    def _outstanding(self) -> int:
        queued = int(self._client.llen(QUEUE)) + int(self._client.hlen(UNACKED))
        return queued + self._lines.parked()

    def _quiet(self) -> bool:
        """Nothing queued, unacked or in line for a while: a put-back is nowhere for a moment."""
        now = time.monotonic()
        if self._outstanding() or not self._lines.empty():
            self._quiet_since = now
        return now - self._quiet_since > QUIET_FOR

    def _wait(self, until: Callable[[], bool], seconds: float) -> bool:
        ends = time.monotonic() + seconds
        self._quiet_since = time.monotonic()
        while time.monotonic() < ends:
            self._crew.refill()
            if until():
                return True
            time.sleep(TICK)
        return False

    def _left(self) -> list[str]:
        waiting = [json.loads(text) for text in self._client.lrange(QUEUE, 0, -1)]
        unacked = [json.loads(text)[0] for text in self._client.hvals(UNACKED)]
        return [str(message["headers"]["id"]) for message in (*waiting, *unacked)]
