"""A worker: fetch, run, ack, in one thread, until it is told to stop or killed."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos.adapter import ChaosQueue, Stranded, WasParked, WasPutBack
from chaos.history import Recorder
from chaos.jobs import Bodies, Diary, make_jobs
from chaos.queue import Message, RedisQueue, Unanswered, insist
from chaos.sinks import Ledger
from giliran import Giliran

IDLE = 0.03
RECOVER_EVERY = 0.4


class Worker:
    """One worker process."""

    def __init__(self, name: str, url: str, folder: Path) -> None:
        self._recorder = Recorder(folder, name)
        self._queue = RedisQueue(url, name)
        self._adapter = ChaosQueue(self._queue)
        diary = Diary(self._recorder)
        diary.watch_log()
        self._turns = Giliran(url, queues=[self._adapter], listeners=[diary])
        bodies = Bodies(diary, lambda: Ledger(folder / "ledger.sqlite"))
        self._jobs = make_jobs(self._turns, bodies)
        self._stopping = False

    def main(self) -> None:
        """Work until SIGTERM."""
        signal.signal(signal.SIGTERM, self._stop)
        self._turns.look_after_lines()
        recover_at = 0.0
        while not self._stopping:
            try:
                if time.monotonic() >= recover_at:
                    self._queue.recover()
                    recover_at = time.monotonic() + RECOVER_EVERY
                fetched = self._queue.fetch()
            except Unanswered:
                time.sleep(IDLE)
                continue
            if fetched is None:
                time.sleep(IDLE)
            else:
                self._deliver(*fetched)
        self._turns.close()

    def _stop(self, number: int, frame: Any) -> None:
        del number, frame
        self._stopping = True

    def _deliver(self, message: Message, had_before: bool) -> None:  # noqa: FBT001
        log, job = self._recorder.log, message.job
        log("delivered", job=job, pub=message.publication, task=message.task, again=had_before)
        try:
            with self._adapter.running(message):
                value = self._jobs[message.task](**message.args)
        except WasPutBack:
            log("put_back", job=job)
        except WasParked:
            log("parked", job=job)
        except Stranded:
            log("stranded", job=job)
            return
        except Exception as error:
            log("outcome", job=job, how="raised", error=type(error).__name__, text=str(error)[:300])
        else:
            log("outcome", job=job, how="returned", value=value)
        try:
            insist(lambda: self._queue.ack(message), tries=3)
        except Unanswered:
            log("unacked", job=job)  # It lies in our own list, and is fetched from there.


def main(name: str, url: str, folder: str) -> Callable[[], None]:
    """Prepare a worker; calling the answer runs it."""
    return Worker(name, url, Path(folder)).main


if __name__ == "__main__":
    main(*sys.argv[1:4])()
