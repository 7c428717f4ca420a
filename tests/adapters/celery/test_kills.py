"""Worker processes killed under load: every task still ends, and its effect is there once.

A kill between a body's effect and the record of it lets the body run again, so the effect is a
write that a repeat cannot double; how often bodies began is counted apart: once more for each kill.

Whole workers are killed on RabbitMQ alone, which delivers again at once. On Redis a message can be
lost with its worker: kombu takes it off its list before it notes it as unacknowledged, and the
socket of a killed worker lives on in its children. A killed child loses none there either, since
the worker has the message.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from tests.adapters.celery.matrix.bench import Bench, Broker, kill
from tests.adapters.celery.matrix.cells import Cell
from tests.adapters.celery.rig import GIVE_UP, Rig, state
from tests.support.rabbitmq import RabbitServer
from tests.support.sessions import children_of, session_members
from tests.support.wait import wait_for

pytestmark = pytest.mark.timeout(180)

RESOURCES = 6
PLAN = "nap 0.05,settle,nap 0.05"
KILLS = 20
CHILDREN = 3


@pytest.fixture
def redis_bench(servers: Rig) -> Iterator[Bench]:
    """No worker yet, on Redis."""
    with Bench(servers, Broker(servers.database(3)), Cell("redis", "prefork")) as made:
        yield made


@pytest.fixture
def rabbit_bench(servers: Rig, rabbit: RabbitServer) -> Iterator[Bench]:
    """No worker yet, on RabbitMQ."""
    broker = Broker(rabbit.url, {"x-queue-type": "classic"})
    with Bench(servers, broker, Cell("classic", "prefork")) as made:
        yield made


def test_twenty_killed_children_lose_no_task_and_double_no_effect(
    redis_bench: Bench, order: str
) -> None:
    redis_bench.start()
    load = Load(redis_bench, order)
    for number in range(KILLS):
        load.kill_child(busy=number % 4 > 0)
    load.judge()


def test_killed_workers_and_children_lose_no_task_and_double_no_effect(
    rabbit_bench: Bench, order: str
) -> None:
    rabbit_bench.start()
    rabbit_bench.start()
    load = Load(rabbit_bench, order)
    for number in range(KILLS):
        if number % 5:
            load.kill_child(busy=True)
        else:
            load.kill_worker()
    load.judge()


class Load:
    """Contended tasks on a bench, and what becomes of them when processes are killed."""

    def __init__(self, bench: Bench, order: str) -> None:
        self._bench, self._rig = bench, bench.rig
        self._orders = [f"{order}-{number}" for number in range(RESOURCES)]
        self._sent: list[tuple[str, Any]] = []
        self._killed = 0

    def send(self) -> None:
        """Send a task for each resource."""
        for name in self._orders:
            self._sent.append((name, self._bench.send("late", name, PLAN, PLAN)))

    def kill_child(self, *, busy: bool) -> None:
        """Kill a child that runs a body, or any; wait until another took its place."""
        self.send()
        choose = self._busy if busy else self._children
        victim = random.choice(wait_for(choose, GIVE_UP, "no child to kill"))
        os.kill(victim, signal.SIGKILL)
        self._killed += 1
        wait_for(lambda: victim not in self._children(), GIVE_UP, "the dead child is kept")
        whole = CHILDREN * len(self._alive())
        wait_for(lambda: len(self._children()) == whole, GIVE_UP, "no other child took its place")

    def kill_worker(self) -> None:
        """Kill the older worker with all its children, and start another."""
        self.send()
        wait_for(self._busy, GIVE_UP, "no child is busy")
        victim = self._bench.workers[-2]
        kill(victim)
        self._killed += CHILDREN
        wait_for(lambda: not session_members(victim.process.pid), GIVE_UP, "children are left")
        self._bench.start()

    def judge(self) -> None:
        """Make sure that each task ended once, and spent no retry."""
        assert {state(result) for _, result in self._sent} == {"SUCCESS"}
        for name in self._orders:
            sent = {result.id for order, result in self._sent if order == name}
            assert set(self._rig.ledger.hgetall(f"settled:{name}")) == sent
            runs = [line["run"] for line in self._rig.lines(name)]
            assert runs == sorted(runs)  # Else two bodies ran at once.
        begins = [line for name in self._orders for line in self._rig.lines(name, "begin")]
        assert {line["retries"] for line in begins} == {0}
        assert len(self._sent) < len(begins) <= len(self._sent) + self._killed

    def _alive(self) -> list[int]:
        return [w.process.pid for w in self._bench.workers if w.process.poll() is None]

    def _children(self) -> list[int]:
        return [child for pid in self._alive() for child in children_of(pid)]

    def _busy(self) -> list[int]:
        children = self._children()
        return [pid for name in self._orders for pid in self._running(name) if pid in children]

    def _running(self, name: str) -> list[int]:
        for text in self._rig.ledger.lrange(f"ledger:{name}", -1, -1):
            line: dict[str, Any] = json.loads(text)
            if line["what"] == "begin":
                return [line["pid"]]
        return []
