"""A user's test needs no server: the fake grants, refuses and loses on command."""

import asyncio
from collections.abc import Iterator

import pytest

from giliran import (
    INJECTED,
    Contended,
    Giliran,
    KeyReused,
    Lease,
    LeaseInterrupt,
    LeaseLost,
    StoreUnavailable,
)
from giliran.testing import fake, off


@pytest.fixture
def turns() -> Iterator[Giliran]:
    turns = Giliran("redis://127.0.0.1:1")  # Nothing listens there, and nothing connects.
    yield turns
    turns.close()


def test_grants_and_replays(turns: Giliran) -> None:
    ran: list[int] = []

    @turns.exclusive("lock:{order}", idempotency_key="refund:{refund}")
    def refund(order: int, refund: str, amount: int, *, lease: Lease = INJECTED) -> int:
        ran.append(lease.fence)
        return amount

    with fake(turns) as store:
        assert refund(1, "a", 5) == 5
        assert refund(1, "a", 5) == 5
        with pytest.raises(KeyReused):
            refund(1, "a", 6)
        assert refund(1, "b", 7) == 7
        assert store.locks == {}
    assert ran == [1, 2]


def test_refuses_and_goes_away(turns: Giliran) -> None:
    with fake(turns) as store:
        store.refuse("lock:*")
        with pytest.raises(Contended), turns.hold("lock:1"):
            pytest.fail("the block must not run")
        store.grant("lock:*")
        store.go_away("LOADING")
        with pytest.raises(StoreUnavailable), turns.hold("lock:1"):
            pytest.fail("the block must not run")
        store.come_back()
        with turns.hold("lock:1") as lease:
            assert store.locks == {"lock:1": lease.token}


def test_two_holders_exclude_each_other(turns: Giliran) -> None:
    async def main() -> None:
        async with turns.hold("lock:1"):
            held = asyncio.get_running_loop().run_in_executor(None, holds, turns)
            assert not await held

    with fake(turns):
        asyncio.run(main())


def holds(turns: Giliran) -> bool:
    """Try the key from a thread of its own."""
    try:
        with turns.hold("lock:1"):
            return True
    except Contended:
        return False


def test_loses_on_command(turns: Giliran) -> None:
    seen: list[str] = []
    with fake(turns) as store:
        with pytest.raises(LeaseLost, match="taken"), turns.hold("lock:1") as lease:
            try:
                store.lose("lock:1")
                for _ in range(1_000_000):
                    pass
            except LeaseInterrupt:
                seen.append(lease.lost)
                raise
        with pytest.raises(LookupError, match="nobody holds"):
            store.lose("lock:1")
    assert seen == ["taken"]


def test_off_lets_everything_through(turns: Giliran) -> None:
    @turns.exclusive("lock:{order}", idempotency_key="refund:{order}")
    def refund(order: int, *, lease: Lease = INJECTED) -> int:
        lease.check()
        ran.append(order)
        return order

    ran: list[int] = []
    with off(turns), turns.hold("lock:1"):
        assert [refund(2), refund(2), asyncio.run(in_a_task(turns))] == [2, 2, 1]
    assert ran == [2, 2]


async def in_a_task(turns: Giliran) -> int:
    async with turns.hold("lock:3"):
        return 1


def test_several_resources_are_granted_all_or_none(turns: Giliran) -> None:
    @turns.exclusive(["order:{order}", "wallet:{wallet}"], idempotency_key="refund:{order}")
    def refund(order: int, wallet: int, *, lease: Lease = INJECTED) -> list[str]:
        assert set(store.locks) == set(lease.fences)
        return list(lease.fences)

    with fake(turns) as store:
        store.refuse("wallet:*")
        with pytest.raises(Contended) as told:
            refund(1, 2)
        assert told.value.key == "wallet:2"
        assert store.locks == {}
        store.grant("wallet:*")
        for _ in range(2):
            assert refund(1, 2) == ["order:1", "wallet:2"]
        assert store.locks == {}
        assert list(store.records) == ["{order:1}:rec:refund:1"]
        with pytest.raises(LeaseLost), turns.hold(["a", "b"], on_lost="flag") as lease:
            store.lose("b")
            assert lease.lost == "taken"
    with off(turns), turns.hold(["a", "b"]) as lease:
        lease.check()
