"""Users bring faults about on a real server with one line each."""

from collections.abc import Callable, Iterator

import pytest
from tests.support.wait import wait_for

from giliran import Contended, Giliran, LeaseInterrupt, LeaseLost
from giliran.testing import (
    FakeStore,
    deliver_twice,
    lose_lease,
    pause_heartbeat,
    stepped_clock,
)


@pytest.fixture
def turns(giliran_url: str) -> Iterator[Giliran]:
    turns = Giliran(giliran_url)
    yield turns
    turns.close()


@pytest.mark.parametrize(("to", "reason"), [(None, "expired"), ("another", "taken")])
def test_a_lease_is_lost(turns: Giliran, giliran_url: str, to: str | None, reason: str) -> None:
    with pytest.raises(LeaseLost) as told, turns.hold("lock:1", ttl=1):
        lose_lease(giliran_url, "lock:1", to=to)
        wait_for(lambda: False)  # Until the heartbeat interrupts it.
    assert told.value.reason == reason
    if to is None:
        with pytest.raises(LookupError):
            lose_lease(giliran_url, "lock:1")


def test_a_paused_heartbeat_tells_nobody_but_the_lease_knows(turns: Giliran) -> None:
    with pytest.raises(LeaseLost), pause_heartbeat(turns), turns.hold("lock:1", ttl=1) as lease:
        wait_for(lambda: lease.lost == "expired")
    with turns.hold("lock:1", ttl=1, wait=2) as lease:
        wait_for(lambda: lease.remaining() < 0.9)
        wait_for(lambda: lease.remaining() > 0.9)


def test_a_stepped_clock_ends_trust_at_once(turns: Giliran) -> None:
    seen: list[str] = []
    with stepped_clock(turns) as clock, pytest.raises(LeaseLost), turns.hold("lock:1") as lease:
        try:
            clock.step(31)
            wait_for(lambda: False)
        except LeaseInterrupt:
            seen.append(lease.lost)
            raise
    assert seen == ["expired"]


def test_two_deliveries_run_once(turns: Giliran) -> None:
    @turns.exclusive("lock:{order}", idempotency_key="refund:{order}")
    def refund(order: int) -> int:
        ran.append(order)
        return order

    ran: list[int] = []
    outcomes = deliver_twice(lambda: refund(1))
    assert ran == [1]
    assert 1 in outcomes
    assert all(outcome == 1 or isinstance(outcome, Contended) for outcome in outcomes)


def test_fixtures_play_redis_or_switch_off(
    giliran_fake: Callable[[Giliran], FakeStore], giliran_off: Callable[[Giliran], None]
) -> None:
    turns = Giliran("redis://127.0.0.1:1")
    store = giliran_fake(turns)
    store.refuse("*")
    with pytest.raises(Contended), turns.hold("lock:1"):
        pytest.fail("the block must not run")
    giliran_off(turns)
    with turns.hold("lock:1"):
        pass
