"""How users write it, for type checkers; nothing here is run.

A line with an ignore comment must be an error: both checkers complain about ignores without one.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

from giliran import (
    INJECTED,
    Contended,
    Event,
    Giliran,
    Lease,
    LeaseLost,
    current_lease,
    fail,
    requeue,
    skip,
    wait,
    whole_function,
)


@dataclass
class Receipt:
    """What a refund returns."""

    order_id: int
    amount: int


def told(event: Event) -> None:
    """Listen."""
    assert_type(event.lock_key, str)


def by_wallet(wallet: str) -> str:
    """Make a key."""
    return f"lock:bank:{wallet[:2]}"


turns = Giliran("redis://127.0.0.1:1", scope=lambda: "acme", listeners=[told])


@turns.exclusive(
    "lock:order:{order_id}",
    ttl=timedelta(seconds=30),
    max_hold=600,
    on_contention=requeue(base=1, cap=timedelta(minutes=1)),
    idempotency_key="refund:{refund_id}",
    fingerprint=("amount",),
    remember=[ValueError],
)
def refund(order_id: int, refund_id: str, amount: int, *, lease: Lease = INJECTED) -> Receipt:
    """Refund an order."""
    assert_type(lease.fence, int)
    assert_type(lease.lost, str)
    return Receipt(order_id, amount)


@turns.exclusive(["lock:order:{order_id}", "lock:wallet:{wallet}", by_wallet])
def pay(order_id: int, wallet: str, *, lease: Lease = INJECTED) -> None:
    """Touch an order and a wallet."""
    assert_type(lease.fences["lock:wallet:7"], int)


@turns.once("receipt:{receipt_id}", on_contention=wait(5))
async def send_receipt(receipt_id: str) -> bool:
    """Send a receipt."""
    return bool(receipt_id)


@turns.exclusive(whole_function("lock:nightly"), on_contention=skip())
def nightly() -> None:
    """Work at night."""


def by_customer(order_id: int) -> str:
    """Make a key."""
    return f"lock:{order_id % 10}"


@turns.exclusive(by_customer, on_contention=fail(), on_lost="flag", after_crash="hold")
def ship(order_id: int) -> None:
    """Ship an order."""


class Shop:
    """Methods are guarded too."""

    @turns.exclusive("lock:order:{order_id}")
    def refund(self, order_id: int) -> int:
        """Refund an order."""
        return order_id


def calls() -> None:
    """What is accepted, and keeps its types."""
    assert_type(refund(1, "x", 5), Receipt)
    assert_type(refund(order_id=1, refund_id="x", amount=5).amount, int)
    assert_type(Shop().refund(1), int)
    nightly()
    plain: Callable[[int], None] = ship
    plain(1)
    awaitable: Callable[[str], Coroutine[Any, Any, bool]] = send_receipt
    waiting: Awaitable[bool] = awaitable("x")
    del waiting


def wrong_calls() -> None:
    """What is refused."""
    refund(1, "x")  # type: ignore[call-arg]
    refund(1, "x", "5")  # type: ignore[arg-type]
    refund(1, "x", 5, colour="red")  # type: ignore[call-arg]
    Shop().refund("1")  # type: ignore[arg-type]
    nightly(1)  # type: ignore[call-arg]


async def awaited() -> None:
    """Coroutines stay coroutines."""
    assert_type(await send_receipt("x"), bool)
    await refund(1, "x", 5)  # type: ignore[misc]
    await send_receipt(1)  # type: ignore[arg-type]
    async with turns.hold("lock:order:42", ttl=30, wait=5) as lease:
        assert_type(lease, Lease)
        assert_type(lease.fence, int)
    await turns.aclose()


def held() -> float:
    """Blocks have a lease."""
    try:
        with turns.hold("lock:order:42", wait=timedelta(seconds=5)) as lease:
            assert_type(lease.fence, int)
            assert_type(current_lease(), Lease)
            lease.check()
    except Contended as busy:
        assert_type(busy.remaining, float | None)
    except LeaseLost as lost:
        assert_type(lost.reason, str)
    return current_lease().remaining()


def wrong_words() -> None:
    """Wrong options are refused."""
    turns.exclusive("lock:{a}", on_lost="panic")  # type: ignore[arg-type]
    turns.exclusive("lock:{a}", after_crash="again")  # type: ignore[arg-type]
    turns.exclusive("lock:{a}", on_contention="wait")  # type: ignore[arg-type]
    turns.exclusive("lock:{a}", ttl="30")  # type: ignore[arg-type]
    turns.exclusive("lock:{a}", lifetime=30)  # type: ignore[call-arg]
    turns.hold(42)  # type: ignore[arg-type]
    with turns.hold("lock:1") as lease:
        lease.fence = 1  # type: ignore[misc]
