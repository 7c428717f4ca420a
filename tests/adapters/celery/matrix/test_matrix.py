"""What giliran promises Celery's users, for each broker, pool and acknowledgement there is.

Real servers, real workers, really killed. The whole matrix takes minutes, so `make test` runs a
slice of it, every broker and every pool once; `make test-celery` runs all and prints the table.
"""

from __future__ import annotations

import signal
from typing import ClassVar

import pytest
from tests.adapters.celery import tasks
from tests.adapters.celery.matrix.bench import Bench, kill
from tests.adapters.celery.matrix.cells import ACKS, CELLS, EARLY, NO_CHILDREN
from tests.adapters.celery.rig import GIVE_UP, outcome, state
from tests.support.wait import wait_for

IN_LINE = {"early": "in_line_early", "late": "in_line"}
pytestmark = pytest.mark.timeout(120)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    cells = [cell for cell in CELLS if cell.kind == getattr(metafunc.cls, "kind", "")]
    metafunc.parametrize("cell", cells, ids=str, scope="class")
    metafunc.parametrize("ack", ACKS)


class Scenarios:
    """All of them, for one broker: the tests of a class run in one process, one after the other."""

    kind: ClassVar[str]

    def test_contended_tasks_run_one_after_the_other(
        self, bench: Bench, order: str, ack: str
    ) -> None:
        bench.rig.hold(order, 60)
        results = [bench.send(ack, order, "nap 0.1", "nap 0.1") for _ in range(4)]
        wait_for(lambda: bench.told("job.requeued", order), GIVE_UP)
        bench.rig.release(order)
        assert [state(result) for result in results] == ["SUCCESS"] * 4
        assert [line["what"] for line in bench.rig.lines(order)] == ["begin", "end"] * 4
        begins = bench.rig.lines(order, "begin")
        assert {line["task_id"] for line in begins} == {result.id for result in results}
        assert [line["retries"] for line in begins] == [0] * 4
        assert sum(line["contentions"] for line in begins) > 0

    def test_parked_tasks_take_turns(self, bench: Bench, order: str, ack: str) -> None:
        bench.rig.hold(order, 60)
        results = [bench.send(IN_LINE[ack], order) for _ in range(3)]
        wait_for(lambda: bench.told("job.parked", order) == 3, GIVE_UP)
        bench.rig.release(order)
        assert [state(result) for result in results] == ["SUCCESS"] * 3
        assert [line["what"] for line in bench.rig.lines(order)] == ["begin", "end"] * 3
        begins = bench.rig.lines(order, "begin")
        assert {line["task_id"] for line in begins} == {result.id for result in results}
        assert [(line["retries"], line["contentions"]) for line in begins] == [(0, 1)] * 3

    def test_a_copy_of_a_running_task_waits_for_its_end(
        self, bench: Bench, order: str, ack: str
    ) -> None:
        message = bench.message(ack, order, "gate")
        bench.deliver(message)
        bench.rig.wait_lines(order, "begin")
        bench.deliver(message)
        wait_for(lambda: bench.told("lock.duplicate", order), GIVE_UP)
        assert not bench.rig.lines(order, "linked")
        bench.rig.open_gate(order)
        bench.rig.wait_lines(order, "linked", 2)
        assert len(bench.rig.lines(order, "begin")) == 1
        assert outcome(tasks.app.AsyncResult(message.headers["id"])) == {"order": order, "run": 1}

    def test_a_copy_of_a_finished_task_returns_its_result(
        self, bench: Bench, order: str, ack: str
    ) -> None:
        message = bench.message(ack, order, "")
        bench.deliver(message)
        bench.rig.wait_lines(order, "linked")
        bench.deliver(message)
        bench.rig.wait_lines(order, "linked", 2)
        assert len(bench.rig.lines(order, "begin")) == 1
        assert outcome(tasks.app.AsyncResult(message.headers["id"])) == {"order": order, "run": 1}

    def test_a_lost_lease_interrupts_the_body(self, bench: Bench, order: str, ack: str) -> None:
        body = "nap 10" if bench.cell.interrupts_calls else ",".join(["nap 0.05"] * 200)
        assert outcome(bench.send(ack, order, f"lose,{body}")) == {"order": order, "run": 2}
        begin, raised, again, _ = bench.rig.lines(order)
        assert raised["error"] == "LeaseInterrupt"
        assert raised["at"] - begin["at"] < 5
        assert (again["retries"], again["recoveries"]) == (0, 1)

    def test_a_killed_child_blocks_nobody(self, bench: Bench, order: str, ack: str) -> None:
        """With late ack its task runs again; with early ack it fails, and the lock is free soon."""
        if bench.cell.pool != "prefork":
            pytest.skip(NO_CHILDREN)
        result = bench.send(ack, order, "kill")
        if ack == "late":
            assert outcome(result) == {"order": order, "run": 2}
        else:
            assert state(result) == "FAILURE"
            assert "exited prematurely" in str(result.result)
            assert len(bench.rig.lines(order, "begin")) == 1
        wait_for(lambda: not bench.rig.held(order), GIVE_UP)

    def test_the_task_of_a_killed_worker_runs_again(
        self, spare: Bench, order: str, ack: str
    ) -> None:
        if ack == "early":
            pytest.skip(EARLY)
        victim = spare.start()
        result = spare.send(ack, order, "gate")
        spare.rig.wait_lines(order, "begin")
        kill(victim)
        spare.start()
        assert outcome(result) == {"order": order, "run": 2}
        assert [line["retries"] for line in spare.rig.lines(order, "begin")] == [0, 0]

    def test_a_warm_shutdown_ends_the_task(self, spare: Bench, order: str, ack: str) -> None:
        worker = spare.start()
        result = spare.send(ack, order, "gate")
        spare.rig.wait_lines(order, "begin")
        worker.process.send_signal(signal.SIGTERM)
        wait_for(lambda: "Warm shutdown" in worker.log(), GIVE_UP)
        spare.rig.open_gate(order)
        assert worker.process.wait(GIVE_UP) == 0
        assert outcome(result) == {"order": order, "run": 1}
        assert not spare.rig.held(order)


class TestRedis(Scenarios):
    kind = "redis"


class TestClassicQueue(Scenarios):
    kind = "classic"


class TestQuorumQueue(Scenarios):
    kind = "quorum"


class TestSqs(Scenarios):
    kind = "sqs"
