"""A request or its reply is lost on the way: held once, run once, recorded once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import pytest
from tests.support.wait import wait_for

from giliran import INJECTED, Giliran, Lease, StoreUnavailable, skip
from giliran.scripts import CLAIM, FINISH, RENEW

if TYPE_CHECKING:
    import redis
    from tests.faults.conftest import Connect

    from giliran.testing._proxy import FaultProxy, Rule

Effect = Literal["drop_reply", "drop_request", "duplicate"]
EFFECTS: tuple[Effect, ...] = ("drop_reply", "drop_request", "duplicate")


def spoil(proxy: FaultProxy, effect: Effect, sha: str) -> Rule:
    """Let one message be lost, or come twice."""
    act: Callable[[bytes], Rule] = getattr(proxy, effect)
    return act(sha.encode())


@pytest.fixture(params=["sync", "async"])
def refund(request: pytest.FixtureRequest, turns: Giliran) -> Callable[[int], list[int]]:
    """A guarded job that answers its fence and attempt."""
    decorate = turns.exclusive("lock:{order}", ttl=3, idempotency_key="refund:{order}")
    if request.param == "sync":

        @decorate
        def work(order: int, *, lease: Lease = INJECTED) -> list[int]:
            return [lease.fence, lease.attempt]

        return work

    @turns.exclusive("lock:{order}", ttl=3, idempotency_key="refund:{order}")
    async def awork(order: int, *, lease: Lease = INJECTED) -> list[int]:
        return [lease.fence, lease.attempt]

    async def main(order: int) -> list[int]:
        try:
            return await awork(order)
        finally:
            await turns.aclose()

    return lambda order: asyncio.run(main(order))


@pytest.fixture
def turns(connect: Connect, proxy: FaultProxy) -> Giliran:
    turns = connect(proxy.url)
    with turns.hold("lock:warm"):  # Now the server knows claim and finish.
        pass
    return turns


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("script", [CLAIM, FINISH], ids=["claim", "finish"])
def test_a_job_runs_once_and_is_recorded_once(
    turns: Giliran,
    proxy: FaultProxy,
    client: redis.Redis,
    refund: Callable[[int], list[int]],
    effect: Effect,
    script: object,
) -> None:
    rule = spoil(proxy, effect, CLAIM.sha if script is CLAIM else FINISH.sha)
    first = refund(1)
    assert rule.hits == 1
    assert first[1] == 1  # One attempt, although it was asked for twice.
    assert client.hgetall("{lock:1}:rec:refund:1")["state"] == "done"
    assert not client.exists("lock:1")
    assert refund(1) == first
    assert turns.counts["job.ran"] == 2  # The one that warmed up, and this one.
    assert turns.counts["job.replayed"] == 1
    assert turns.counts["lock.lost"] == 0


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_lease_survives_one_lost_renewal(
    turns: Giliran, proxy: FaultProxy, client: redis.Redis, effect: Effect
) -> None:
    with turns.hold("lock:1", ttl=1) as lease:
        began = lease.trusted_until
        wait_for(lambda: lease.trusted_until > began)  # Now the server knows renew, too.
        rule = spoil(proxy, effect, RENEW.sha)
        wait_for(lambda: rule.hits)
        began = lease.trusted_until
        wait_for(lambda: lease.trusted_until > began)
    assert turns.counts["lock.renew_failed"] >= (effect != "duplicate")
    assert turns.counts["lock.lost"] == 0


def test_a_claim_whose_answers_are_all_lost_gives_back_what_it_may_have(
    turns: Giliran, proxy: FaultProxy, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows that it holds the lock: the body does not run, the lock is free soon."""
    monkeypatch.setattr("giliran.term.PATIENCE", 0.3)
    rule = proxy.drop_reply(CLAIM.sha.encode(), times=100)
    with pytest.raises(StoreUnavailable) as told, turns.hold("lock:1", ttl=60):
        pytest.fail("must not run")
    assert rule.hits > 1
    assert told.value.ambiguous
    wait_for(lambda: not client.exists("lock:1"))


def test_skip_does_not_mistake_an_outage_for_contention(
    turns: Giliran, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("giliran.term.PATIENCE", 0.2)

    @turns.exclusive("lock:{order}", ttl=1, on_contention=skip())
    def work(order: int) -> None:
        pytest.fail("must not run")

    proxy.refuse(on=True)
    proxy.reset_all()
    with pytest.raises(StoreUnavailable):
        work(1)
    proxy.refuse(on=False)
