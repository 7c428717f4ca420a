"""The runs of the demo: the same jobs, done in three ways, under the same faults."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from redis import Redis

from giliran.demo import ledger
from giliran.demo.broker import Refund, Sent, plan, publish, unsettled
from giliran.demo.crew import Crew
from giliran.demo.faults import Faults
from giliran.demo.journal import History
from giliran.demo.report import Report, make_report
from giliran.drive import boot_clock
from giliran.embedded import EmbeddedServer

MODES = ("unguarded", "guarded", "redis_record")
WORKERS = 2
HITS = ("kill", "kill", "freeze", "kill", "kill", "freeze", "kill", "kill", "kill")
FREEZE = 1.6  # Beyond the TTL of 1 s and its margin.

# When a run is over, in seconds: the broker has been empty for so long and all is paid, or not
# all; nothing was noted for so long; or it has taken so long in all.
QUIET, GIVEN_UP, STALLED, DEADLINE = 0.2, 3.0, 30.0, 120.0

Tell: TypeAlias = Callable[[str, int, int], None]


def run_all(folder: Path, jobs: int, orders: int, seed: int, tell: Tell) -> dict[str, Report]:
    """Do the same refunds in every mode, one after the other, each on a server of its own.

    Args:
        folder: an empty folder; each mode gets one in it.
        jobs: how many refunds.
        orders: how many orders they fall on.
        seed: draws the refunds, and what is sent twice.
        tell: is told the mode, how many refunds are paid, and how many bodies were hit.

    Raises:
        ServerNotFound: if there is no Redis or Valkey to start.
        ServerStartFailed: if it does not start.
        WorkerDied: if a worker ends by itself.
    """
    refunds = tuple(plan(jobs, orders, seed))
    reports: dict[str, Report] = {}
    for mode in MODES:
        (folder / mode).mkdir()
        # A new server each time: to an old one, a worker that was killed may be still connected,
        # through a child that is not quite dead, and be given the first message.
        with EmbeddedServer() as server, Redis.from_url(server.url) as client:
            reports[mode] = Run(mode, folder / mode, refunds, seed, tell).report(client, server.url)
    return reports


@dataclass(frozen=True, slots=True)
class Run:
    """One run: the refunds done in one way."""

    mode: str
    folder: Path
    refunds: tuple[Refund, ...]
    seed: int
    tell: Tell

    def report(self, broker: Redis, url: str) -> Report:
        """Do the refunds, and count what came of it."""
        books, journal = self.folder / "books.sqlite", self.folder / "journal.jsonl"
        ledger.create(books, sorted({refund.order_id for refund in self.refunds}))
        sent = publish(url, self.refunds, self.seed)
        settings = {
            "GILIRAN_DEMO_URL": url,
            "GILIRAN_DEMO_MODE": self.mode,
            "GILIRAN_DEMO_BOOKS": str(books),
            "GILIRAN_DEMO_JOURNAL": str(journal),
        }
        started = boot_clock()
        with closing(History(journal)) as history, Crew(self.folder, WORKERS, settings) as crew:
            luck = random.Random(self.seed)
            faults = Faults(history, crew.owns, luck, hits=HITS, freeze=FREEZE)
            self._watch(crew, history, faults, broker, sent)
            seconds = boot_clock() - started
        return make_report(
            self.mode, self.refunds, sent, ledger.read(books), history, faults, seconds
        )

    def _watch(
        self, crew: Crew, history: History, faults: Faults, broker: Redis, sent: Sent
    ) -> None:
        """Hit bodies until all is settled, nothing comes any more, or it takes too long."""
        now = heard_at = busy_at = boot_clock()
        deadline = now + DEADLINE
        jobs, messages = len(self.refunds), sent.firsts | sent.repeats
        while now < deadline and now < heard_at + STALLED:
            crew.check()
            if history.read():
                heard_at = now
            faults.step(len(history.paid) / jobs)
            self.tell(self.mode, len(history.paid), faults.hits)
            now = boot_clock()
            if faults.busy or history.running() or not history.ready or unsettled(broker):
                busy_at = now
            settled = len(history.paid) == jobs and messages <= history.received.keys()
            if now > busy_at + (QUIET if settled else GIVEN_UP):
                return
            time.sleep(0.01)
        faults.thaw_all()
