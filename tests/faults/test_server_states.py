"""What a server may be or become: old, gone, frozen, empty; told once and clearly, nothing lost."""

from __future__ import annotations

import contextlib
import socketserver
import threading
import time
from typing import TYPE_CHECKING

import pytest
import redis
from tests.support.leaks import keys_without_ttl
from tests.support.wait import wait_for

from giliran import (
    INJECTED,
    Contended,
    Lease,
    LeaseInterrupt,
    LeaseLost,
    StoreMisconfigured,
    StoreUnavailable,
)
from giliran.drive import boot_clock

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.conftest import MakeServer
    from tests.faults.conftest import Connect

    from giliran.embedded import EmbeddedServer

ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")


def renewed(lease: Lease) -> None:
    """Wait until the lease is confirmed once more."""
    before = lease.trusted_until
    wait_for(lambda: lease.trusted_until > before)


def admin(server: EmbeddedServer) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True)


# ---------------------------------------------------------------------- before the body


class _Redis5(socketserver.StreamRequestHandler):
    """Answers like Redis 5.0.14, as far as a claim asks it."""

    def handle(self) -> None:
        while line := self.rfile.readline():
            words: list[bytes] = []
            for _ in range(int(line[1:])):
                size = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(size + 2)[:-2].upper())
            self.wfile.write(self._reply(words[0]))

    def _reply(self, command: bytes) -> bytes:
        if command == b"EVALSHA":
            return b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
        if command == b"INFO":
            told = b"# Server\r\nredis_version:5.0.14\r\nredis_mode:standalone\r\n"
            return b"$%d\r\n%b\r\n" % (len(told), told)
        return b"-ERR unknown command `%b`, with args beginning with: \r\n" % command


class _Stub(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextlib.contextmanager
def redis_5() -> Generator[str]:
    with _Stub(("127.0.0.1", 0), _Redis5) as stub:
        thread = threading.Thread(target=stub.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"redis://127.0.0.1:{stub.server_address[1]}/0"
        finally:
            stub.shutdown()
            thread.join()


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_server_that_is_too_old_is_told_by_its_version(connect: Connect, protocol: int) -> None:
    with redis_5() as url:
        turns = connect(f"{url}?protocol={protocol}")
        with pytest.raises(StoreMisconfigured) as told, turns.hold("lock:1"):
            pytest.fail("must not run")
        turns.close()
    if protocol == 2:
        assert told.value.code == "OLD"
        assert "is Redis 5.0.14; giliran needs Redis 6.2 or Valkey: upgrade" in str(told.value)
    else:  # It refuses the handshake, before anybody can ask for its version.
        assert "is too old or lacks a command; Redis 6.2 or Valkey is needed" in str(told.value)


@pytest.mark.usefixtures("impatient")
def test_patience_bounds_how_long_a_claim_waits_for_nobody(connect: Connect) -> None:
    turns = connect("redis://127.0.0.1:1")
    began = time.monotonic()
    with pytest.raises(StoreUnavailable) as told, turns.hold("lock:1", ttl=1):
        pytest.fail("must not run")
    assert 0.2 < time.monotonic() - began < 2.0
    assert told.value.code == "unreachable"


@pytest.mark.keys_without_ttl("lock:1")
def test_a_lock_of_another_program_without_an_end_is_left_alone(
    connect: Connect, redis_url: str, client: redis.Redis
) -> None:
    client.set("lock:1", "theirs")
    turns = connect(redis_url)
    with pytest.raises(Contended) as told, turns.hold("lock:1"):
        pytest.fail("must not run")
    assert told.value.remaining is None
    assert told.value.holder == ""
    assert "held by another program without a known end" in str(told.value)
    assert (client.get("lock:1"), client.pttl("lock:1")) == ("theirs", -1)
    assert client.keys() == ["lock:1"]


# ---------------------------------------------------------------------- while the body runs


def test_a_record_that_cannot_be_persisted_is_told_and_the_result_returned(
    make_server: MakeServer, connect: Connect, tmp_path: Path
) -> None:
    server = make_server("--enable-protected-configs", "yes")
    turns = connect(server.url)

    @turns.once("receipt:{number}", ttl=1)
    def send(number: int) -> str:
        fail_to_save(client, tmp_path / "gone")
        return "sent"

    with admin(server) as client:
        assert send(1) == "sent"
        client.config_set("stop-writes-on-bgsave-error", "no")
        client.config_set("save", "")  # Else it would not end without having saved.
        assert turns.counts["record.unrecorded"] == 1
        assert turns.counts["lock.lost"] == 0
        wait_for(lambda: not client.exists("receipt:1"))  # Not released, but it expires.
    assert keys_without_ttl(server.url) == []


def fail_to_save(client: redis.Redis, disk: Path) -> None:
    """Take the folder away from under the server, and let it try to save."""
    disk.mkdir()
    client.config_set("dir", str(disk))
    disk.rmdir()
    client.config_set("save", "3600 1")
    client.set("a", "change", px=60_000)
    client.bgsave()
    wait_for(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")


def test_a_server_that_comes_back_empty_has_lost_the_lease(
    make_server: MakeServer, connect: Connect
) -> None:
    server = make_server()
    turns = connect(server.url)
    with pytest.raises(LeaseLost) as told, turns.hold("lock:1", ttl=1.5):
        server.kill()
        server.restart()
        wait_for(lambda: False)  # Until the heartbeat interrupts it.
    assert told.value.reason == "expired"
    with turns.hold("lock:1"):
        pass


def test_a_server_that_comes_back_with_all_it_confirmed_keeps_the_lease(
    make_server: MakeServer, connect: Connect
) -> None:
    server = make_server(*ALWAYS)
    turns = connect(server.url)
    ran: list[int] = []

    @turns.once("receipt:{number}", ttl=3)
    def send(number: int, *, lease: Lease = INJECTED) -> str:
        ran.append(number)
        server.kill()
        server.restart()
        renewed(lease)
        return "sent"

    assert [send(1), send(1)] == ["sent", "sent"]
    assert ran == [1]
    assert turns.counts["lock.lost"] == 0
    with admin(server) as client:
        assert not client.exists("receipt:1")


def test_forgotten_scripts_are_sent_again(connect: Connect, client: redis.Redis) -> None:
    settings = client.connection_pool.connection_kwargs
    turns = connect(f"redis://127.0.0.1:{settings['port']}/0")

    @turns.once("receipt:{number}", ttl=1)
    def send(number: int, *, lease: Lease = INJECTED) -> int:
        renewed(lease)
        client.script_flush()
        renewed(lease)
        client.script_flush()
        return number

    for number in (1, 2):
        client.script_flush()
        assert send(number) == send(number) == number
    assert turns.counts["lock.lost"] == 0
    assert turns.counts["lock.renew_failed"] == 0
    assert client.keys("receipt:*") == []


def test_a_short_outage_loses_nothing(make_server: MakeServer, connect: Connect) -> None:
    server = make_server()
    turns = connect(server.url)
    with turns.hold("lock:1", ttl=1.5) as lease:
        renewed(lease)
        server.pause()
        wait_for(lambda: turns.counts["lock.renew_failed"])
        server.resume()
        renewed(lease)
    assert turns.counts["lock.lost"] == 0
    with turns.hold("lock:1"):
        pass


@pytest.mark.parametrize("outage", ["frozen", "killed"])
def test_a_long_outage_is_told_when_trust_ends(
    make_server: MakeServer, connect: Connect, outage: str
) -> None:
    server = make_server()
    turns = connect(server.url)
    told_at: list[float] = []
    until: list[float] = []
    with pytest.raises(LeaseLost) as told, turns.hold("lock:1", ttl=1) as lease:
        if outage == "frozen":
            server.pause()
        else:
            server.kill()
        try:
            wait_for(lambda: False)
        except LeaseInterrupt:
            told_at.append(boot_clock())
            until.append(lease.trusted_until)
            raise
    assert told.value.reason == "unreachable"
    assert -0.001 <= told_at[0] - until[0] <= 0.2
    if outage == "frozen":
        server.resume()
