"""Settings come from a URL or any single-server client; secrets go nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

from giliran import INJECTED, Giliran, GiliranError, Lease, StoreMisconfigured

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.conftest import MakeServer
    from tests.faults.conftest import Connect

    from giliran.embedded import EmbeddedServer

CLIENTS = [redis.Redis, redis.asyncio.Redis, valkey.Valkey, valkey.asyncio.Valkey]
SECRET = "pw-b7e1c0ffee"


def works_in_both_faces(turns: Giliran) -> None:
    """Claim, run, record and replay, in a thread and in an event loop."""
    ran: list[int] = []

    @turns.once("receipt:{number}")
    def send(number: int) -> str:
        ran.append(number)
        return "gesendet ✓"

    @turns.once("receipt:{number}")
    async def asend(number: int) -> str:
        ran.append(number)
        return "gesendet ✓"

    async def main() -> list[str]:
        try:
            return [await asend(2), await asend(2)]
        finally:
            await turns.aclose()

    assert [send(1), send(1), *asyncio.run(main())] == ["gesendet ✓"] * 4
    assert ran == [1, 2]
    assert turns.counts["lock.lost"] == 0


@contextlib.contextmanager
def closing(client: Any) -> Generator[Any]:
    """Close a client of either face; giliran never opens its connections."""
    try:
        yield client
    finally:
        if hasattr(client, "aclose"):
            asyncio.run(client.aclose())
        else:
            client.close()


def name_of(made_by: type[object]) -> str:
    return f"{made_by.__module__.partition('.client')[0]}.{made_by.__name__}"


every_client = pytest.mark.parametrize("made_by", CLIENTS, ids=name_of)


@every_client
@pytest.mark.parametrize("protocol", [2, 3])
def test_settings_of_a_client_are_enough(
    connect: Connect, redis_url: str, made_by: Any, protocol: int
) -> None:
    with closing(made_by.from_url(redis_url, protocol=protocol, decode_responses=True)) as client:
        works_in_both_faces(connect(client))
    with closing(made_by.from_url(redis_url, protocol=protocol)) as client:
        turns = connect(client)
        assert turns.heartbeat is not None
        with turns.hold("lock:1"):
            pass


@every_client
def test_a_client_made_by_name_gives_database_and_user(
    make_server: MakeServer, connect: Connect, made_by: Any
) -> None:
    server = with_user(make_server())
    options = {"host": "127.0.0.1", "port": server.port, "db": 3}
    with closing(made_by(username="app", password=SECRET, **options)) as client:
        works_in_both_faces(connect(client))
    with redis.Redis.from_url(server.url) as admin:
        assert [name for name in admin.info("keyspace") if name.startswith("db")] == ["db3"]


@every_client
def test_a_clients_own_timeouts_and_decoding_are_left_behind(
    connect: Connect, redis_url: str, made_by: Any
) -> None:
    """A client that waits for ever, or for a microsecond, makes no lease of ours do so."""
    for timeout in (None, 0.000_001):
        made = made_by.from_url(redis_url, socket_timeout=timeout, encoding="utf-16")
        with closing(made) as client:
            works_in_both_faces(connect(client, scope=str(timeout)))


@every_client
def test_a_client_of_a_unix_socket_is_enough(
    make_server: MakeServer, connect: Connect, made_by: Any
) -> None:
    server = make_server(unixsocket=True)
    path = server.url.removeprefix("unix://")
    with closing(made_by(unix_socket_path=path)) as client:
        works_in_both_faces(connect(client))


def test_the_url_of_a_unix_socket_is_enough(make_server: MakeServer, connect: Connect) -> None:
    server = make_server(unixsocket=True)
    works_in_both_faces(connect(server.url))


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("scheme", ["redis", "valkey"])
def test_a_url_names_user_password_database_and_protocol(
    make_server: MakeServer, connect: Connect, scheme: str, protocol: int
) -> None:
    server = with_user(make_server())
    url = f"{scheme}://app:{SECRET}@127.0.0.1:{server.port}/2?protocol={protocol}"
    works_in_both_faces(connect(url))
    with redis.Redis.from_url(server.url) as admin:
        assert [name for name in admin.info("keyspace") if name.startswith("db")] == ["db2"]


def with_user(server: EmbeddedServer) -> EmbeddedServer:
    """Let in the user `app` only, beside the administrator, to our keys and scripts."""
    with redis.Redis.from_url(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "app", "on", f">{SECRET}", "~*", "+@all", "-@admin")
    return server


# ---------------------------------------------------------------------- what is refused


def cluster() -> object:
    """Make a Cluster client without a cluster: its constructor would look for one."""
    return redis.RedisCluster.__new__(redis.RedisCluster)


def sentinel() -> Any:
    untyped: Any = redis.Sentinel
    return untyped([("127.0.0.1", 1)])


def master_by_sentinel() -> object:
    return sentinel().master_for("primary")


@pytest.mark.parametrize("make", [cluster, sentinel, master_by_sentinel])
def test_clients_of_many_servers_are_refused(make: Any) -> None:
    with pytest.raises(TypeError, match=r"giliran (needs|cannot take).*(single server|Sentinel)"):
        Giliran(make())


@pytest.mark.parametrize("where", [6379, None, b"redis://localhost", ("localhost", 6379)])
def test_what_is_no_place_is_refused(where: object) -> None:
    with pytest.raises(TypeError, match="giliran needs a URL or a redis-py or valkey-py client"):
        Giliran(where)


@pytest.mark.parametrize("url", ["localhost:6379", "http://localhost", "", "redis://h:port/0"])
def test_a_url_that_cannot_be_read_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="write redis://user:password@host:port/database"):
        Giliran(url)


# ---------------------------------------------------------------------- what is never told


def texts_of(error: BaseException) -> str:
    """Put together all that is printed or pickled of an error."""
    return "".join(traceback.format_exception(error)) + repr(error) + repr(error.args)


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_password_is_never_told(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture, connect: Connect, protocol: int
) -> None:
    caplog.set_level(logging.DEBUG)
    server = with_user(make_server())
    right = f"redis://app:{SECRET}@127.0.0.1:{server.port}/2?protocol={protocol}"
    turns = connect(right)
    works_in_both_faces(turns)
    rejected = connect(right.replace(SECRET, f"wrong-{SECRET}"))
    with pytest.raises(StoreMisconfigured) as told, rejected.hold("lock:1", ttl=1):
        pytest.fail("must not run")
    told_by = [repr(turns), str(turns), repr(vars(turns)), repr(rejected), texts_of(told.value)]
    assert SECRET not in "".join(told_by)
    assert SECRET not in caplog.text + repr([vars(record) for record in caplog.records])


@pytest.mark.parametrize(
    "where",
    [
        f"redis://app:{SECRET}@127.0.0.1:port/0",
        f"redis://:{SECRET}/rest@127.0.0.1:6379/0",  # Not escaped, so it reads as a port.
        f"redis://:{SECRET}#rest@127.0.0.1:6379/0",
        f"http://app:{SECRET}@127.0.0.1:6379/0",
        f"redis://app:{SECRET}@127.0.0.1:6379/0?socket_timeout=soon",
        f"redis://app:{SECRET}@127.0.0.1:6379/0".encode(),
        {"host": "localhost", "password": SECRET},
    ],
)
def test_a_password_is_not_told_by_settings_that_cannot_be_read(where: object) -> None:
    with pytest.raises((TypeError, ValueError)) as told:
        Giliran(where)
    assert SECRET not in texts_of(told.value)


def test_tokens_and_arguments_are_never_told(
    connect: Connect, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    turns = connect(redis_url)
    tokens: list[str] = []
    said: list[str] = []

    @turns.exclusive("lock:{order}", idempotency_key="refund:{order}", fingerprint=("order",))
    def refund(order: int, card: str, *, lease: Lease = INJECTED) -> str:
        tokens.append(lease.token)
        said.append(repr(lease))
        return f"charged {card}"

    @turns.exclusive("lock:{order}", idempotency_key="refund:{order}")
    def otherwise(order: int, card: str) -> str:
        return card

    card = "4111-1111-1111-1111"
    assert refund(1, card) == refund(1, card) == f"charged {card}"
    with pytest.raises(GiliranError) as told:
        otherwise(1, card)
    everything = caplog.text + repr([vars(record) for record in caplog.records]) + "".join(said)
    everything += str(told.value) + repr(told.value)
    assert "lock:1" in everything
    assert tokens[0] not in everything
    assert card not in everything


def test_more_threads_than_the_pool_of_the_client(connect: Connect, redis_url: str) -> None:
    """The client's own pool is not used, so it is neither exhausted nor closed."""
    with redis.Redis.from_url(redis_url, max_connections=1) as given:
        turns = connect(given)
        with contextlib.ExitStack() as stack:
            for number in range(5):
                stack.enter_context(turns.hold(f"lock:{number}"))
        turns.close()
        assert given.ping()
