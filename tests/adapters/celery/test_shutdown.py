"""A worker that is told to stop finishes what it runs."""

from __future__ import annotations

import signal

from tests.adapters.celery import tasks
from tests.adapters.celery.rig import Rig, outcome


def test_a_warm_shutdown_lets_the_task_end_and_give_its_lock_back(servers: Rig, order: str) -> None:
    with servers.run("warm", children=1) as worker:
        result = tasks.late.apply_async((order, "nap 1.5"), queue="warm")
        servers.wait_lines(order, "begin")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(15) == 0
    assert outcome(result) == {"order": order, "run": 1}
    assert not servers.held(order)
