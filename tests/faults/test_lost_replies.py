"""Each message of a job is lost or doubled once: what it does is done once, and told as such."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal

import pytest
from tests.support.wait import wait_for

from giliran import INJECTED, Giliran, Lease, current_lease
from giliran.scripts import ALL, CLAIM, FINISH, RENEW

if TYPE_CHECKING:
    import redis
    from tests.faults.conftest import Connect

    from giliran.testing._proxy import FaultProxy, Rule

Effect = Literal["drop_reply", "drop_request", "duplicate"]
Hold = Callable[[Giliran, Callable[[], object]], None]


def with_hold(turns: Giliran, body: Callable[[], object]) -> None:
    with turns.hold("lock:1", ttl=1):
        body()


def with_ahold(turns: Giliran, body: Callable[[], object]) -> None:
    async def main() -> None:
        async with turns.hold("lock:1", ttl=1):
            await asyncio.to_thread(body)

    run(turns, main())


def run(turns: Giliran, main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine and close the connections of its loop."""

    async def closing() -> None:
        try:
            await main
        finally:
            await turns.aclose()

    asyncio.run(closing())


every_face = pytest.mark.parametrize("hold", [with_hold, with_ahold], ids=["sync", "async"])
every_effect = pytest.mark.parametrize("effect", ["drop_reply", "drop_request", "duplicate"])


@pytest.fixture
def turns(connect: Connect, proxy: FaultProxy, client: redis.Redis) -> Giliran:
    """An object whose server knows all scripts, so that a request is one message."""
    for script in ALL:
        client.script_load(script.text)
    return connect(proxy.url)


def renewals(lease: Lease, number: int) -> None:
    """Wait until the lease is confirmed so many times."""
    for _ in range(number):
        confirmed(lease, lease.trusted_until)


def confirmed(lease: Lease, before: float) -> None:
    """Wait until the lease is trusted for longer than before."""
    wait_for(lambda: lease.trusted_until > before)


def spoil(proxy: FaultProxy, effect: Effect, sha: str) -> Rule:
    rule: Rule = getattr(proxy, effect)(sha.encode())
    return rule


@every_face
@every_effect
@pytest.mark.parametrize("script", [CLAIM, FINISH], ids=["claim", "finish"])
def test_a_block_runs_once_and_leaves_no_lock(
    turns: Giliran, proxy: FaultProxy, client: redis.Redis, hold: Hold, effect: Effect, script: Any
) -> None:
    """Without a record there is nothing to read the outcome of a lost finish from."""
    ran: list[int] = []
    rule = spoil(proxy, effect, script.sha)
    hold(turns, lambda: ran.append(client.exists("lock:1")))
    assert rule.hits == 1
    assert ran == [1]
    assert not client.exists("lock:1")
    assert turns.counts["lock.lost"] == 0
    assert turns.counts["lock.acquired"] == turns.counts["lock.released"] == 1


@every_face
@every_effect
def test_a_body_longer_than_its_ttl_keeps_its_lease(
    turns: Giliran, proxy: FaultProxy, client: redis.Redis, hold: Hold, effect: Effect
) -> None:
    rule = spoil(proxy, effect, RENEW.sha)

    def body() -> None:
        lease = current_lease()
        ends = lease.trusted_until + 1.5  # Renewed for as long as that.
        wait_for(lambda: rule.hits and lease.trusted_until > ends)
        lease.check()
        assert str(client.get("lock:1")).startswith(lease.token)

    hold(turns, body)
    assert turns.counts["lock.lost"] == 0
    if effect != "duplicate":  # A busy machine may miss one more beat of 125 ms.
        assert turns.counts["lock.renew_failed"] >= 1
    assert not client.exists("lock:1")


@every_face
def test_connections_killed_all_the_time_lose_nothing(
    turns: Giliran, client: redis.Redis, hold: Hold
) -> None:
    def body() -> None:
        lease = current_lease()
        for _ in range(2):
            kill_all_others(client)
            renewals(lease, 1)
        kill_all_others(client)  # The connection of the finish too.

    hold(turns, body)
    hold(turns, lambda: None)
    assert turns.counts["lock.lost"] == 0
    assert turns.counts["lock.released"] == 2


def kill_all_others(client: redis.Redis) -> None:
    client.client_kill_filter(_type="normal", skipme=True)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_claim_cancelled_before_its_answer_frees_the_lock_and_its_record(
    turns: Giliran, proxy: FaultProxy, client: redis.Redis, recorded: bool
) -> None:
    """Housekeeping gives back what nobody holds; the body never ran, and no crash is counted."""
    attempts: list[int] = []
    key = "refund:{order}" if recorded else None

    @turns.exclusive("lock:{order}", ttl=30, idempotency_key=key, after_crash="hold")
    async def refund(order: int, *, lease: Lease = INJECTED) -> None:
        attempts.append(lease.attempt)

    async def main() -> None:
        task = asyncio.create_task(refund(1))
        await asyncio.to_thread(wait_for, lambda: client.exists("lock:1"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert rule.hits == 1
        await asyncio.to_thread(wait_for, lambda: not client.exists("lock:1"))
        assert not client.exists("{lock:1}:rec:refund:1")
        await refund(1)

    rule = proxy.delay_reply(CLAIM.sha.encode(), 1.0)
    run(turns, main())
    assert attempts == [1]


def test_a_claim_out_of_time_before_its_answer_frees_the_lock(
    turns: Giliran, proxy: FaultProxy, client: redis.Redis
) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), turns.hold("lock:1", ttl=30):
                pytest.fail("must not run")
        await asyncio.to_thread(wait_for, lambda: not client.exists("lock:1"))

    proxy.delay_reply(CLAIM.sha.encode(), 0.5)
    run(turns, main())
