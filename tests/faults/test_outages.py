"""Redis goes away while a body runs: short outages lose nothing, long ones are told in time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import redis
from tests.faces.face import later
from tests.support.wait import wait_for

from giliran import Giliran, LeaseInterrupt, LeaseLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeServer
    from tests.faults.conftest import Connect

    from giliran import Lease
    from giliran.testing._proxy import FaultProxy

LATEST = 0.15  # How long after the end of trust a body may hear of it, in seconds.


def black(proxy: FaultProxy) -> None:
    proxy.blackhole(on=True)


def refusing(proxy: FaultProxy) -> None:
    proxy.refuse(on=True)
    proxy.reset_all()


def renewed(lease: Lease) -> None:
    """Wait for one more confirmed renewal."""
    began = lease.trusted_until
    wait_for(lambda: lease.trusted_until > began)


def told_at(turns: Giliran, lease: Lease) -> float:
    """Wait for the interrupt; answer how late it came after the end of trust."""
    try:
        wait_for(lambda: False, 10)
    except LeaseInterrupt:
        late = turns.clock() - lease.trusted_until
        assert lease.lost == "unreachable"
        return late
    raise AssertionError("it was never told")


@pytest.mark.parametrize("cut", [black, refusing])
def test_a_thread_is_told_when_trust_ends(
    connect: Connect, proxy: FaultProxy, cut: Callable[[FaultProxy], None]
) -> None:
    turns = connect(proxy.url)
    late: list[float] = []
    held = turns.hold("lock:1", ttl=1)
    with pytest.raises(LeaseLost, match="Redis did not confirm it in time") as lost, held as lease:
        cut(proxy)
        late.append(told_at(turns, lease))
        raise LeaseInterrupt
    proxy.blackhole(on=False)
    proxy.refuse(on=False)
    assert lost.value.reason == "unreachable"
    assert 0 <= late[0] < LATEST
    assert turns.counts["lock.renew_failed"] >= 1


def test_a_task_is_told_when_trust_ends(connect: Connect, proxy: FaultProxy) -> None:
    turns = connect(proxy.url)

    async def main() -> float:
        late: list[float] = []
        with pytest.raises(LeaseLost):
            async with turns.hold("lock:1", ttl=1) as lease:
                black(proxy)
                try:
                    await asyncio.sleep(10)
                except asyncio.CancelledError:
                    late.append(turns.clock() - lease.trusted_until)
                    raise
        await turns.aclose()
        return late[0]

    late = asyncio.run(main())
    proxy.blackhole(on=False)
    assert 0 <= late < LATEST


def test_an_outage_shorter_than_the_ttl_loses_nothing(connect: Connect, proxy: FaultProxy) -> None:
    turns = connect(proxy.url)
    with turns.hold("lock:1", ttl=2) as lease:
        refusing(proxy)
        wait_for(lambda: turns.counts["lock.renew_failed"] >= 2)
        proxy.refuse(on=False)
        renewed(lease)
    assert turns.counts["lock.lost"] == 0
    assert turns.counts["job.ran"] == 1


def test_a_frozen_server_is_survived(make_server: MakeServer, connect: Connect) -> None:
    server = make_server()
    turns = connect(server.url)
    with turns.hold("lock:1", ttl=2) as lease:
        began = lease.trusted_until
        server.pause()
        wait_for(lambda: turns.counts["lock.renew_failed"] >= 1)
        server.resume()
        wait_for(lambda: lease.trusted_until > began)
    assert turns.counts["lock.lost"] == 0


def test_killed_connections_are_made_again(connect: Connect, client: redis.Redis) -> None:
    turns = connect(f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}")
    with turns.hold("lock:1", ttl=1) as lease:
        for _ in range(2):
            client.client_kill_filter(_type="normal", skipme=True)
            renewed(lease)
    client.client_kill_filter(_type="normal", skipme=True)
    with turns.hold("lock:2"):
        pass
    assert turns.counts["lock.lost"] == 0


def test_a_restart_that_forgets_everything_is_a_loss(
    make_server: MakeServer, connect: Connect
) -> None:
    server = make_server()
    turns = connect(server.url)
    with pytest.raises(LeaseLost) as lost, turns.hold("lock:1", ttl=2):
        server.kill()
        server.restart()
        wait_for(lambda: False, 10)
    assert lost.value.reason == "expired"
    with turns.hold("lock:1"):
        pass


def test_a_restart_that_keeps_everything_loses_nothing(
    make_server: MakeServer, connect: Connect
) -> None:
    server = make_server("--appendonly", "yes", "--appendfsync", "always")
    turns = connect(server.url)

    @turns.exclusive("lock:{order}", ttl=3, idempotency_key="refund:{order}")
    def refund(order: int) -> int:
        ran.append(order)
        server.kill()
        server.restart()
        with redis.Redis.from_url(server.url) as client:
            renewed = client.pttl("lock:1")
            wait_for(lambda: client.pttl("lock:1") > renewed)
        return order

    ran: list[int] = []
    assert refund(1) == refund(1) == 1
    assert ran == [1]
    assert turns.counts["lock.lost"] == 0


def test_a_claim_waits_for_a_server_that_comes_back(
    make_server: MakeServer, connect: Connect
) -> None:
    server = make_server()
    turns = connect(server.url)
    server.kill()
    with later(server.restart, 0.3), turns.hold("lock:1"):
        pass
    assert turns.counts["job.ran"] == 1


def test_scripts_are_loaded_again_after_a_flush(connect: Connect, client: redis.Redis) -> None:
    turns = connect(f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}")
    with turns.hold("lock:1", ttl=2) as lease:
        for _ in range(2):
            client.script_flush()
            renewed(lease)
        client.script_flush()
    assert not client.exists("lock:1")
    client.script_flush()
    with turns.hold("lock:1"):
        pass
    assert turns.counts["lock.renew_failed"] == 0
