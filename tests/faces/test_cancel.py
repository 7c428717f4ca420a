"""asyncio: cancellation from outside, of claims and bodies, and loops that come and go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.faces.face import closing
from tests.support.wait import wait_for

from giliran import Giliran, LeaseLost
from giliran.scripts import CLAIM, FINISH
from giliran.testing import lose_lease
from giliran.testing._proxy import FaultProxy

if TYPE_CHECKING:
    import redis

    from giliran.embedded import EmbeddedServer


def test_a_cancelled_claim_leaves_no_lock_behind(
    server: EmbeddedServer, client: redis.Redis
) -> None:
    """The server granted the lock, nobody heard it: it is given back long before its TTL."""

    async def main() -> None:
        async with turns.hold("lock:warm"):
            pass
        proxy.delay_reply(CLAIM.sha.encode(), 5.0)
        task = asyncio.create_task(turns.hold("lock:1", ttl=60).__aenter__())
        await asyncio.to_thread(wait_for, lambda: client.exists("lock:1"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with FaultProxy(server.port) as proxy:
        turns = Giliran(proxy.url)
        asyncio.run(closing(turns, main()))
        wait_for(lambda: not client.exists("lock:1"), 5)
        turns.close()


def test_a_cancelled_claim_leaves_no_record_behind(
    server: EmbeddedServer, client: redis.Redis
) -> None:
    async def main() -> None:
        @turns.once("receipt:{number}", ttl=60)
        async def send(number: int) -> None:
            pytest.fail("must not run")

        await turns.hold("lock:warm").__aenter__()
        proxy.delay_reply(CLAIM.sha.encode(), 5.0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await send(1)

    with FaultProxy(server.port) as proxy:
        turns = Giliran(proxy.url)
        asyncio.run(closing(turns, main()))
        wait_for(lambda: set(client.keys("*receipt*")) == {"{receipt:1}:fence"}, 5)
        turns.close()


def test_a_cancelled_finish_releases_all_the_same(
    server: EmbeddedServer, client: redis.Redis
) -> None:
    async def main() -> None:
        hold = turns.hold("lock:1", ttl=60)
        await hold.__aenter__()
        proxy.drop_request(FINISH.sha.encode())
        task = asyncio.create_task(hold.__aexit__(None, None, None))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with FaultProxy(server.port) as proxy:
        turns = Giliran(proxy.url)
        asyncio.run(closing(turns, main()))
        wait_for(lambda: not client.exists("lock:1"), 5)
        turns.close()


def test_a_loss_undoes_its_own_cancellation_only(turns: Giliran, redis_url: str) -> None:
    """Cancelled from outside and by a loss at once: it stays cancelled, once, from outside."""

    async def body() -> None:
        async with turns.hold("lock:1", ttl=1):
            await asyncio.to_thread(lose_lease, redis_url, "lock:1")
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                told.set()
                await outside.wait()
                raise

    async def main() -> None:
        task = asyncio.create_task(body())
        await told.wait()
        assert task.cancelling() == 1
        task.cancel()
        outside.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelling() == 1

    told, outside = asyncio.Event(), asyncio.Event()
    asyncio.run(closing(turns, main()))


def test_a_task_goes_on_after_a_loss(turns: Giliran, redis_url: str) -> None:
    """LeaseLost is an ordinary error: timeouts and task groups around it work as ever."""

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        async with asyncio.timeout(10):
            for _ in range(2):
                with pytest.raises(LeaseLost):
                    await work(1)
                assert task.cancelling() == 0
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))

    @turns.exclusive("lock:{order}", ttl=1)
    async def work(order: int) -> None:
        await asyncio.to_thread(lose_lease, redis_url, "lock:1")
        await asyncio.sleep(5)

    asyncio.run(closing(turns, main()))


def test_a_timeout_around_a_guarded_coroutine_is_a_timeout(
    turns: Giliran, client: redis.Redis
) -> None:
    @turns.exclusive("lock:{order}")
    async def work(order: int) -> None:
        await asyncio.sleep(30)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await work(1)
        assert not client.exists("lock:1")

    asyncio.run(closing(turns, main()))


def test_one_object_serves_event_loops_one_after_the_other(turns: Giliran) -> None:
    async def main() -> int:
        async with turns.hold("lock:1") as lease:
            return lease.fence

    first = asyncio.run(closing(turns, main()))
    assert asyncio.run(closing(turns, main())) > first
    with turns.hold("lock:1") as lease:
        assert lease.fence > first
