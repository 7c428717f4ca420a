"""exclusive: no two calls run at once for one resource, and it is free again afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.faces.face import elsewhere

from giliran import (
    INJECTED,
    AlreadyHeld,
    Contended,
    Giliran,
    Lease,
    current_lease,
    fail,
)

if TYPE_CHECKING:
    import redis
    from tests.faces.face import Face


def test_runs_and_releases(turns: Giliran, face: Face, client: redis.Redis) -> None:
    @face.guard(turns.exclusive("lock:order:{order}"))
    async def refund(order: int, amount: int = 3) -> dict[str, int]:
        assert 0 < client.pttl("lock:order:42") <= 30_000
        return {"order": order, "amount": amount}

    assert face.run(refund(42)) == {"order": 42, "amount": 3}
    assert face.run(refund(order=42, amount=4)) == {"order": 42, "amount": 4}
    assert client.keys() == ["{lock:order:42}:fence"]


def test_releases_after_an_error(turns: Giliran, face: Face, client: redis.Redis) -> None:
    @face.guard(turns.exclusive("lock:{order}"))
    async def refund(order: int) -> None:
        raise ValueError(order)

    for _ in range(2):
        with pytest.raises(ValueError, match="7"):
            face.run(refund(7))
    assert not client.exists("lock:7")


def test_excludes_one_resource_and_no_other(turns: Giliran, face: Face) -> None:
    ran: list[int] = []

    @face.guard(turns.exclusive("lock:{order}", on_contention=fail()))
    async def refund(order: int) -> None:
        ran.append(order)

    async def main() -> None:
        with elsewhere(turns, "lock:1"):
            with pytest.raises(Contended):
                await refund(1)
            await refund(2)
        await refund(1)

    face.run(main())
    assert ran == [2, 1]


def test_fences_rise(turns: Giliran, face: Face, client: redis.Redis) -> None:
    """Later holders have larger fences, even after everything was flushed."""
    fences: list[int] = []

    @face.guard(turns.exclusive("lock:{order}"))
    async def work(order: int, *, lease: Lease = INJECTED) -> None:
        fences.append(lease.fence)

    for _ in range(3):
        face.run(work(1))
        client.flushall()
    assert fences == sorted(set(fences))


def test_nested_call_is_refused_without_a_round_trip(
    turns: Giliran, face: Face, client: redis.Redis
) -> None:
    @face.guard(turns.exclusive("lock:{order}"))
    async def inner(order: int) -> None:
        pytest.fail("must not run")

    @face.guard(turns.exclusive("lock:{order}"))
    async def outer(order: int) -> None:
        before = commands(client)
        with pytest.raises(AlreadyHeld, match="not re-entrant; guard the outer function only"):
            await inner(order)
        assert commands(client) == before

    face.run(outer(1))
    face.run(outer(1))


def commands(client: redis.Redis) -> int:
    """How many scripts this server has run."""
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))


def test_the_innermost_lease_is_current(turns: Giliran, face: Face) -> None:
    async def main() -> None:
        async with face.enter(turns.hold("lock:a")) as outer:
            async with face.enter(turns.hold("lock:b")) as inner:
                assert current_lease() is inner
            assert current_lease() is outer

    face.run(main())


def test_a_key_may_be_a_function(turns: Giliran, face: Face) -> None:
    @face.guard(turns.exclusive(lambda order: f"lock:{order % 10}"))
    async def work(order: int, *, lease: Lease = INJECTED) -> str:
        return lease.key

    assert face.run(work(42)) == "lock:2"
