"""A server for each test process, empty before each test, and no leaks after it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

import pytest
import redis
from tests.support.leaks import child_processes, giliran_threads, keys_without_ttl, wipe
from tests.support.wait import wait_for

from giliran.embedded import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Iterator


class MakeServer(Protocol):
    """Starts one more server, which ends with the test."""

    def __call__(self, *args: str, unixsocket: bool = False) -> EmbeddedServer: ...


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "keys_without_ttl(*globs): keys that this test may leave without an expiry"
    )


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """The server all tests of this process share: not for killing or configuring."""
    with EmbeddedServer() as running:
        yield running


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Empty the server before the test; fail it for keys, threads or processes it leaves."""
    url = None
    if "server" in request.fixturenames:
        url = request.getfixturevalue("server").url
        wipe(url)
    before = child_processes().keys()
    yield
    wait_for(lambda: not giliran_threads(), 2.0, f"threads left alive: {giliran_threads()}")
    left = {pid: words for pid, words in child_processes().items() if pid not in before}
    wait_for(lambda: not left.keys() & child_processes().keys(), 2.0, f"processes left: {left}")
    if url is not None:
        allowed = [g for m in request.node.iter_markers("keys_without_ttl") for g in m.args]
        keys = keys_without_ttl(url, allowed)
        assert not keys, f"keys left without expiry: {keys}; see the marker keys_without_ttl"


@pytest.fixture(scope="session", params=["server", "cluster"])
def place(request: pytest.FixtureRequest) -> EmbeddedServer:
    """A server where one script reaches all keys, and one where it does not."""
    running: EmbeddedServer = request.getfixturevalue(request.param)
    return running


@pytest.fixture
def empty_place(place: EmbeddedServer) -> Iterator[EmbeddedServer]:
    """The same, empty before the test and without leaks after it."""
    wipe(place.url)
    yield place
    assert not keys_without_ttl(place.url)


@pytest.fixture(scope="session")
def cluster() -> Iterator[EmbeddedServer]:
    """A Redis Cluster of one node: it has every slot, and refuses scripts that touch two."""
    with EmbeddedServer(args=("--cluster-enabled", "yes")) as running:
        with redis.Redis.from_url(running.url, decode_responses=True) as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
            wait_for(lambda: "state:ok" in str(client.execute_command("CLUSTER", "INFO")), 10)
        yield running


@pytest.fixture
def redis_url(server: EmbeddedServer) -> str:
    """The URL of the empty shared server."""
    return server.url


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    """A client that gives strings, closed after the test."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as connected:
        yield connected


@pytest.fixture
def make_server() -> Iterator[MakeServer]:
    """A factory for servers of the test's own, with options, to kill, freeze and restart."""
    with contextlib.ExitStack() as servers:

        def make(*args: str, unixsocket: bool = False) -> EmbeddedServer:
            return servers.enter_context(EmbeddedServer(args=args, unixsocket=unixsocket))

        yield make
