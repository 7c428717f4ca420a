"""Where Redis is: URLs and clients of all kinds give their address, and never their secrets."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, cast

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.cluster
import redis.sentinel
import valkey
import valkey.asyncio
from tests.faces.face import closing

from giliran import Giliran
from giliran.connect import address

if TYPE_CHECKING:
    from tests.conftest import MakeServer
    from tests.faults.conftest import Connect

KINDS: dict[str, Any] = {
    "redis": redis.Redis,
    "redis.asyncio": redis.asyncio.Redis,
    "valkey": valkey.Valkey,
    "valkey.asyncio": valkey.asyncio.Valkey,
}


def works(turns: Giliran, client: redis.Redis, key: str = "lock:1") -> None:
    """Hold in both faces, with an answer that has text in it, and a record."""

    async def main() -> None:
        async with turns.hold(key):
            assert client.exists(key)

    @turns.once("récipé:{number}", retain=60)
    def send(number: str) -> str:
        return f"sent {number} ✓"

    with turns.hold(key):
        assert client.exists(key)
    asyncio.run(closing(turns, main()))
    assert send("ü") == send("ü") == "sent ü ✓"
    assert not client.exists(key)


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_client_is_a_source_of_settings(
    connect: Connect, client: redis.Redis, redis_url: str, kind: str, *, decode: bool, protocol: int
) -> None:
    given = KINDS[kind].from_url(redis_url, decode_responses=decode, protocol=protocol)
    turns = connect(given)
    works(turns, client)
    assert "decode_responses" not in address(given).options
    assert address(given).options["protocol"] == protocol
    close(given)


def close(given: Any) -> None:
    """Close a client; the async ones never connected."""
    if hasattr(given, "aclose"):
        asyncio.run(given.aclose())
    else:
        given.close()


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
@pytest.mark.parametrize(
    "query", ["", "?protocol=2", "?decode_responses=true", "?max_connections=1"]
)
def test_a_url(
    connect: Connect, client: redis.Redis, redis_url: str, scheme: str, query: str
) -> None:
    works(connect(redis_url.replace("redis", scheme, 1) + query), client)


def test_a_unix_socket(make_server: MakeServer, connect: Connect) -> None:
    url = make_server(unixsocket=True).url
    with redis.Redis.from_url(url) as client:
        works(connect(url), client)
        works(connect(client), client)


def test_a_database_of_its_own(connect: Connect, redis_url: str) -> None:
    url = redis_url.removesuffix("/0") + "/5"
    with redis.Redis.from_url(url) as client:
        works(connect(url), client)


def test_a_user_with_a_password(make_server: MakeServer, connect: Connect) -> None:
    server = make_server()
    with redis.Redis.from_url(server.url) as client:
        rights = "+evalsha +eval +get +set +del +type +pttl +pexpire +hmget +hset +time"
        client.execute_command("ACL", "SETUSER", "app", "on", ">hunter2", "~*", *rights.split())
        turns = connect(server.url.replace("//", "//app:hunter2@"))
        works(turns, client)
        with redis.Redis(port=server.port, username="app", password="hunter2") as given:
            works(connect(given), client)
            assert "hunter2" not in repr(address(given)) + str(address(given))
    assert "hunter2" not in repr(turns) + repr(turns._transport) + repr(turns.heartbeat)


def test_more_threads_than_a_pool_of_the_client(connect: Connect, redis_url: str) -> None:
    """The client's own pool is not used, so it is neither exhausted nor closed."""
    with redis.Redis.from_url(redis_url, max_connections=1) as given:
        turns = connect(given)
        with contextlib.ExitStack() as stack:
            for number in range(5):
                stack.enter_context(turns.hold(f"lock:{number}"))
        turns.close()
        assert given.ping()


class NoClient:
    """Something else."""


def no_client(name: str) -> object:
    sentinel: Any = redis.sentinel.Sentinel
    asentinel: Any = redis.asyncio.sentinel.Sentinel
    if name == "sentinel":
        return sentinel([("127.0.0.1", 1)])
    if name == "master":
        return sentinel([("127.0.0.1", 1)]).master_for("main")
    if name == "async master":
        return asentinel([("127.0.0.1", 1)]).master_for("main")
    if name == "cluster":
        return cast("Any", redis.cluster.RedisCluster).__new__(redis.cluster.RedisCluster)
    return {"none": None, "number": 6379, "object": NoClient(), "class": redis.Redis}[name]


@pytest.mark.parametrize(
    "name",
    ["sentinel", "master", "async master", "cluster", "none", "number", "object", "class"],
)
def test_anything_else_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=r"URL or a (redis-py|client)"):
        Giliran(no_client(name))


@pytest.mark.parametrize("url", ["", "localhost:6379", "http://localhost", "redis//localhost"])
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="cannot read this URL: write redis://"):
        Giliran(url)
