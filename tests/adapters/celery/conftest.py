"""One worker, broker and lock store for all tests of a process; an order for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.adapters.celery import tasks
from tests.adapters.celery.rig import Rig
from tests.support.rabbitmq import RabbitServer, need_rabbitmq
from tests.support.sqs import ENVIRONMENT, SqsServer

from giliran.embedded import EmbeddedServer


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Broker and lock store, and no worker yet."""
    with EmbeddedServer() as broker, EmbeddedServer() as store:
        yield Rig(broker, store, tmp_path_factory.mktemp("workers"))
        tasks.app.close()


@pytest.fixture(scope="session")
def rig(servers: Rig) -> Iterator[Rig]:
    """A worker with three children serves the default queue."""
    with servers.run("celery") as servers.worker:
        yield servers


@pytest.fixture(scope="session")
def rabbit() -> Iterator[RabbitServer]:
    """A RabbitMQ for all tests of a process; five seconds for the first that asks."""
    need_rabbitmq()
    with RabbitServer() as running:
        yield running


@pytest.fixture(scope="session")
def sqs() -> Iterator[SqsServer]:
    """An SQS for all tests of a process, and credentials of nobody for those who use it."""
    with pytest.MonkeyPatch.context() as patch, SqsServer() as running:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield running


@pytest.fixture
def order() -> str:
    """A name that no other test uses."""
    return f"order-{uuid.uuid4().hex[:12]}"


@pytest.fixture(params=["early", "late"])
def task(request: pytest.FixtureRequest) -> object:
    """A task that puts contended jobs back, acked before it runs or after."""
    return getattr(tasks, request.param)
