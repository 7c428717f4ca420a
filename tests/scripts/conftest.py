"""The backends that every table runs on: the fake, and each server there is."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import redis
from tests.scripts.backends import OnFake, OnServer

from giliran.embedded import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import MakeServer
    from tests.scripts.backends import Backend


ON_PATH = [name for name in ("valkey-server", "redis-server") if shutil.which(name)]


@pytest.fixture(scope="session", params=["fake", "found", *ON_PATH])
def where(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a server of this kind; "" for the fake."""
    kind: str = request.param
    if kind == "fake":
        yield ""
    elif kind == "found":
        found: EmbeddedServer = request.getfixturevalue("server")
        yield found.url
    else:
        with EmbeddedServer(shutil.which(kind)) as running:
            yield running.url


@pytest.fixture
def backend(where: str) -> Iterator[Backend]:
    """An empty store."""
    if not where:
        yield OnFake()
        return
    with redis.Redis.from_url(where, decode_responses=True) as client:
        client.flushall()
        yield OnServer(client)
        client.flushall()


@pytest.fixture(params=["fake", "found"])
def own_backend(request: pytest.FixtureRequest, make_server: MakeServer) -> Iterator[Backend]:
    """An empty store of the test's own, to configure."""
    if request.param == "fake":
        yield OnFake()
        return
    with redis.Redis.from_url(make_server().url, decode_responses=True) as client:
        yield OnServer(client)
