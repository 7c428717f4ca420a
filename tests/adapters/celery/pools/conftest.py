"""A worker of each pool, on a queue of its own."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.adapters.celery.rig import Rig, Worker

SIZES = {"prefork": 1, "threads": 16, "gevent": 60, "solo": 1}
MORE = {"include": ["tests.adapters.celery.pools.steps"], "worker_prefetch_multiplier": 4}


class Pools:
    """The workers, and how a task gets to one of them."""

    def __init__(self, workers: dict[str, Worker]) -> None:
        self._workers = workers

    def worker(self, pool: str) -> Worker:
        """Return the worker of a pool."""
        return self._workers[pool]

    def told(self, pool: str, event: str, order: str) -> int:
        """Count the lines of a worker's log about one event of one order."""
        return sum(event in line and order in line for line in self.worker(pool).log().splitlines())

    def send(self, pool: str, task: Any, order: str, *plan: str, **options: object) -> Any:
        """Send a task to a pool."""
        return task.apply_async((order, *plan), queue=f"in-{pool}", **options)


@pytest.fixture(scope="session")
def pools(servers: Rig) -> Iterator[Pools]:
    """All pools, for all tests of the process."""
    with contextlib.ExitStack() as block, ThreadPoolExecutor() as starters:

        def start(pool: str) -> Worker:
            running = servers.run(f"in-{pool}", pool=pool, children=SIZES[pool], settings=MORE)
            return block.enter_context(running)

        workers = dict(zip(SIZES, starters.map(start, SIZES), strict=True))
        yield Pools(workers)
        for worker in workers.values():  # Else they would end one after the other.
            worker.process.send_signal(signal.SIGTERM)
