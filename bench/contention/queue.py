"""A crowd of Celery tasks on one key, in a worker of eight slots."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SLOTS = 8
PATIENCE = 90.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one crowd cost.

    Attributes:
        seconds: from the first message to the last end.
        deliveries: how often the queue delivered each job.
        overtakes: how many jobs ran before one that had come earlier.
        overlaps: how many pairs of neighbours were in the body at once.
        cold: seconds from sending to the end, of the jobs with a key of their own.
    """

    seconds: float
    deliveries: list[int]
    overtakes: int
    overlaps: int
    cold: list[float]

    @property
    def cold_p95(self) -> float:
        """The 95th percentile of the cold jobs, in seconds."""
        return statistics.quantiles(self.cold, n=20)[-1]


@contextlib.contextmanager
def worker(url: str) -> Generator[None]:
    """Run the worker in a block."""
    command = [sys.executable, "-m", "celery", "-A", "bench.contention.app", "worker"]
    command += ["-P", "prefork", "-c", str(SLOTS), "--without-gossip", "--without-mingle"]
    command += ["--without-heartbeat", "--loglevel=WARNING"]
    environment = {**os.environ, "BENCH_URL": url, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(5)


def crowd(
    client: Any, task: Any, hot: int, seconds: float, cold: int = 0, rate: float = 0.0
) -> Outcome:
    """Send a crowd, wait until all have run, and look at the ledger.

    `rate` is how many jobs are sent in a second; 0: all at once.
    """
    client.delete("ledger", "deliveries")
    every = (hot + cold) // cold if cold else 0
    sent: dict[str, float] = {}
    cold_ids: set[str] = set()
    started = time.monotonic()
    for number in range(hot + cold):
        is_cold = bool(every) and number % every == every - 1 and len(cold_ids) < cold
        if rate:
            time.sleep(max(0.0, started + number / rate - time.monotonic()))
        before = time.monotonic()
        result = task.delay(f"cold-{number}" if is_cold else "hot", seconds)
        sent[result.id] = before
        if is_cold:
            cold_ids.add(result.id)
    lines = _ledger(client, hot + cold)
    deliveries = [raw.decode() for raw in client.lrange("deliveries", 0, -1)]
    hot_lines = [line for line in lines if line[0] not in cold_ids]
    return Outcome(
        max(line[2] for line in lines) - started,
        [deliveries.count(job) for job in sent],
        _overtakes(hot_lines),
        sum(one[2] > other[1] for one, other in itertools.pairwise(hot_lines)),
        [line[2] - sent[line[0]] for line in lines if line[0] in cold_ids],
    )


def relay(client: Any, task: Any, jobs: int, seconds: float) -> float:
    """Measure a relay of jobs, each sent by the one before: seconds from the first to the last."""
    client.delete("ledger", "deliveries")
    started = time.monotonic()
    task.delay(seconds, jobs - 1)
    return max(line[2] for line in _ledger(client, jobs)) - started


Line = tuple[str, float, float, int, int]


def _ledger(client: Any, count: int) -> list[Line]:
    ends = time.monotonic() + PATIENCE
    while int(client.llen("ledger")) < count:
        if time.monotonic() > ends:
            raise TimeoutError(f"{client.llen('ledger')} of {count} jobs ran in {PATIENCE} s")
        time.sleep(0.05)
    rows = [raw.decode().split() for raw in client.lrange("ledger", 0, -1)]
    lines = [(row[0], float(row[1]), float(row[2]), int(row[3]), int(row[4])) for row in rows]
    return sorted(lines, key=lambda line: line[1])


def _overtakes(lines: list[Line]) -> int:
    """Count jobs that ran before one with a smaller rank; only a line gives ranks."""
    ranks = [line[4] for line in lines if line[4]]
    return sum(one > other for one, other in itertools.pairwise(ranks))


def median(outcomes: list[Outcome], of: Callable[[Outcome], float]) -> float:
    """The median of a number over rounds."""
    return statistics.median(of(outcome) for outcome in outcomes)
