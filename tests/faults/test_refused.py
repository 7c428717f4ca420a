"""A server that refuses: one clear error with what to do, the body never runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
import redis
from tests.support.leaks import keys_without_ttl
from tests.support.wait import wait_for

from giliran import INJECTED, Giliran, Lease, LeaseLost, StoreMisconfigured, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import MakeServer
    from tests.faults.conftest import Connect

    from giliran.embedded import EmbeddedServer

pytestmark = pytest.mark.usefixtures("impatient")


def refusal(turns: Giliran, key: str = "lock:1") -> StoreUnavailable:
    """Claim in both faces; both must be refused alike."""

    async def claim() -> None:
        try:
            async with turns.hold(key, ttl=1):
                pytest.fail("must not run")
        finally:
            await turns.aclose()

    with pytest.raises(StoreUnavailable) as told, turns.hold(key, ttl=1):
        pytest.fail("must not run")
    with pytest.raises(StoreUnavailable) as atold:
        asyncio.run(claim())
    assert (type(told.value), told.value.code) == (type(atold.value), atold.value.code)
    return told.value


def admin(url: str) -> Any:
    """Connect untyped: redis-py has no types for some commands of administrators."""
    return redis.Redis.from_url(url, decode_responses=True)


def test_nobody_listens(connect: Connect) -> None:
    error = refusal(connect("redis://:hunter2@127.0.0.1:1/3"))
    assert not isinstance(error, StoreMisconfigured)
    assert error.code == "unreachable"
    assert "Redis at 127.0.0.1:1/3 did not answer" in str(error)
    assert "hunter2" not in str(error)


def test_wrong_password(make_server: MakeServer, connect: Connect) -> None:
    server = make_server("--requirepass", "right")
    for url, code, advice in (
        (server.url, "NOAUTH", "put it into the URL"),
        (with_login(server, ":wrong"), "WRONGPASS", "refuses this user or password"),
    ):
        error = refusal(connect(url))
        assert isinstance(error, StoreMisconfigured)
        assert error.code == code
        assert advice in str(error)
        assert "wrong" not in str(error).replace("WRONGPASS", "")
    with connect(with_login(server, ":right")).hold("lock:1"):
        pass


def with_login(server: EmbeddedServer, login: str) -> str:
    return server.url.replace("redis://", f"redis://{login}@")


def test_a_user_without_evalsha(make_server: MakeServer, connect: Connect) -> None:
    server = make_server()
    with admin(server.url) as client:
        client.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-evalsha")
    error = refusal(connect(with_login(server, "app:pw")))
    assert isinstance(error, StoreMisconfigured)
    assert error.code == "NOPERM"
    assert "allow EVALSHA, EVAL and the commands of our scripts" in str(error)


INNER = ("get", "set", "del", "hmget", "hset", "pexpire", "time")


@pytest.mark.parametrize("command", INNER)
def test_a_user_without_a_scripts_command_leaves_nothing_half_written(
    make_server: MakeServer, connect: Connect, command: str
) -> None:
    server = make_server()
    with admin(server.url) as client:
        client.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", f"-{command}")
    turns = connect(with_login(server, "app:pw"))

    @turns.exclusive("lock:{order}", ttl=1, max_hold=1, idempotency_key="refund:{order}")
    def refund(order: int) -> int:
        return order

    if command == "del":  # Only the release needs it; the lock is left to its TTL.
        assert refund(1) == 1
    else:
        with pytest.raises(StoreMisconfigured, match="lacks rights") as told:
            refund(1)
        assert told.value.code == "NOPERM"
    assert keys_without_ttl(server.url) == []


def test_a_replica_is_no_primary(make_server: MakeServer, connect: Connect) -> None:
    server = make_server()
    turns = connect(server.url)
    with turns.hold("lock:1"), admin(server.url) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        error = refusal(turns, "lock:2")
        client.execute_command("REPLICAOF", "NO", "ONE")
    assert error.code == "READONLY"
    assert "point the URL at the primary" in str(error)
    with turns.hold("lock:1"):
        pass


def test_out_of_memory_refuses_claims_and_lets_releases_pass(
    make_server: MakeServer, connect: Connect
) -> None:
    server = make_server("--maxmemory-policy", "noeviction")
    turns = connect(server.url)
    with admin(server.url) as client:
        with turns.hold("lock:1", ttl=1) as lease:
            client.config_set("maxmemory", 1)
            error = refusal(turns, "lock:2")
            renewed = lease.trusted_until
            wait_for(lambda: lease.trusted_until > renewed)
        assert client.keys("lock:*") == []
        client.config_set("maxmemory", 0)
    assert error.code == "OOM"
    assert "raise maxmemory" in str(error)
    assert turns.counts["lock.lost"] == 0


def test_a_result_that_no_memory_is_left_for_is_told(
    make_server: MakeServer, connect: Connect
) -> None:
    """The effect has happened: the job does not fail, the missing record is counted."""
    server = make_server("--maxmemory-policy", "noeviction")
    turns = connect(server.url)

    @turns.once("receipt:{number}")
    def send(number: int) -> str:
        client.config_set("maxmemory", 1)
        return "sent"

    with admin(server.url) as client:
        assert send(1) == "sent"
        client.config_set("maxmemory", 0)
        assert not client.exists("receipt:1")
    assert turns.counts["record.unrecorded"] == 1


def test_a_server_that_cannot_persist(
    make_server: MakeServer, connect: Connect, tmp_path: Path
) -> None:
    server = make_server("--enable-protected-configs", "yes")
    turns = connect(server.url)
    with admin(server.url) as client:
        with turns.hold("lock:1", ttl=1, on_lost="flag"):
            break_disk(client, tmp_path / "disk")
            error = refusal(turns, "lock:2")
        client.config_set("stop-writes-on-bgsave-error", "no")
        client.config_set("save", "")
    assert error.code == "MISCONF"
    assert "look at its disk and log" in str(error)
    assert turns.counts["lock.lost"] == 0
    with turns.hold("lock:1", wait=2):  # It was left to expire.
        pass


def break_disk(client: Any, disk: Path) -> None:
    """Take the folder away from under a server that wants to write to it."""
    disk.mkdir()
    client.config_set("dir", str(disk))
    disk.rmdir()
    client.config_set("save", "3600 1")
    client.set("a", "change", px=60_000)
    client.bgsave()
    wait_for(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")


def test_a_server_that_loads_its_data_is_waited_for(
    make_server: MakeServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it loads nothing is granted; patience that lasts long enough gets its turn."""
    server = make_server("--loading-process-events-interval-bytes", "1024")
    turns = connect(server.url)
    with turns.hold("lock:warm"):
        pass
    load_slowly(server, seconds=2)
    error = refusal(turns)
    assert error.code == "LOADING"
    assert "it will answer when that is done" in str(error)
    monkeypatch.setattr("giliran.term.PATIENCE", 5.0)
    with turns.hold("lock:1"):
        pass


def load_slowly(server: EmbeddedServer, seconds: float) -> None:
    """Let the server load a snapshot, in so many seconds."""
    keys = 100
    client = admin(server.url)
    for number in range(keys):
        client.set(f"filler:{number}", str(number) * 500, px=600_000)
    client.config_set("rdbcompression", "no")
    client.config_set("key-load-delay", int(seconds * 1_000_000 / keys))
    loader = admin(server.url)
    connection = loader.connection_pool.get_connection()
    connection.send_command("DEBUG", "RELOAD")
    wait_for(lambda: is_loading(client.ping))
    connection.disconnect()
    loader.close()
    client.close()


def is_loading(call: Callable[[], object]) -> bool:
    try:
        call()
    except redis.BusyLoadingError:
        return True
    return False


def test_the_lock_key_holds_something_else(connect: Connect, client: redis.Redis) -> None:
    client.rpush("lock:1", "a list")
    client.pexpire("lock:1", 60_000)
    error = refusal(connect(redis_url_of(client)))
    assert isinstance(error, StoreMisconfigured)
    assert error.code == "WRONGTYPE"
    assert "lock key 'lock:1' holds a list, not a lock" in str(error)
    assert "choose another key" in str(error)
    assert cast("Any", client).lrange("lock:1", 0, -1) == ["a list"]
    assert client.keys() == ["lock:1"]


def redis_url_of(client: redis.Redis) -> str:
    settings = client.connection_pool.connection_kwargs
    return f"redis://{settings['host']}:{settings['port']}"


def test_the_lock_becomes_something_else_while_held(connect: Connect, client: redis.Redis) -> None:
    turns = connect(redis_url_of(client))

    @turns.exclusive("lock:{order}", ttl=1, on_lost="flag")
    def work(order: int, *, lease: Lease = INJECTED) -> None:
        client.delete("lock:1")
        client.rpush("lock:1", "a list")
        client.pexpire("lock:1", 60_000)
        wait_for(lambda: lease.lost)
        lost.append(lease.lost)

    lost: list[str] = []
    with pytest.raises(LeaseLost):
        work(1)
    assert lost == ["taken"]
    assert cast("Any", client).type("lock:1") == "list"
