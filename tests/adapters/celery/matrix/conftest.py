"""The cells as parameters, their brokers and workers, and the table of what came out."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import pytest
from tests.adapters.celery.matrix.bench import Bench, Broker
from tests.adapters.celery.matrix.cells import WHOLE, Cell
from tests.adapters.celery.matrix.table import Table
from tests.adapters.celery.rig import Rig

SOON = 2  # seconds after which what a dead worker did not ack is delivered again
RESTORE_SOON = {
    "visibility_timeout": SOON,
    "unacked_restore_interval": 0.3,
    "unacked_restore_throttle": 1,
}
# A worker without an event loop restores only when it waited for Redis in vain, for two seconds;
# by default Redis answers after one.
RESTORE_AT_ALL = {"polling_interval": 5}
SQS = {
    "region": "us-east-1",
    "is_secure": False,
    "wait_time_seconds": 0,
    "polling_interval": 0.1,
}
table = Table()


class Brokers(NamedTuple):
    """One broker twice: with a visibility timeout as long as usual, and with a short one."""

    patient: Broker
    hasty: Broker


@pytest.fixture(scope="class")
def brokers(request: pytest.FixtureRequest, servers: Rig, cell: Cell) -> Brokers:
    """The broker of a cell, as most workers have it and as those that are killed have it."""
    if cell.kind == "redis":
        # Of its own, since a worker restores all messages of a database by its own timeout.
        green = RESTORE_AT_ALL if cell.pool == "gevent" else {}
        hasty = Broker(servers.database(4), {}, {**RESTORE_SOON, **green})
        return Brokers(Broker(servers.database(3)), hasty)
    if cell.kind == "sqs":
        url = request.getfixturevalue("sqs").url
        return Brokers(Broker(url, {}, SQS), Broker(url, {}, {**SQS, "visibility_timeout": SOON}))
    limit = {"x-delivery-limit": 3} if cell.kind == "quorum" else {}
    url = request.getfixturevalue("rabbit").url
    broker = Broker(url, {"x-queue-type": cell.kind, **limit})
    return Brokers(broker, broker)  # It sees that a worker is gone.


@pytest.fixture(scope="class")
def bench(servers: Rig, brokers: Brokers, cell: Cell) -> Iterator[Bench]:
    """The workers of a cell that no test kills."""
    with Bench(servers, brokers.patient, cell) as shared:
        for _ in range(cell.workers):
            shared.start()
        yield shared


@pytest.fixture
def spare(servers: Rig, brokers: Brokers, cell: Cell) -> Iterator[Bench]:
    """No worker yet, and a broker that soon delivers again what dead ones did not ack."""
    with Bench(servers, brokers.hasty, cell) as own:
        yield own


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, pytest.TestReport]:
    report: pytest.TestReport = yield
    arguments: dict[str, Any] = getattr(item, "funcargs", {})
    used = arguments.get("spare") or arguments.get("bench")
    if report.failed and isinstance(used, Bench):
        report.sections += [("a worker", worker.log()[-8000:]) for worker in used.workers]
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    table.enter(report)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if WHOLE:
        terminalreporter.section("Celery")
        for line in table.lines():
            terminalreporter.line(line)
