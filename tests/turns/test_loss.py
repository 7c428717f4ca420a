"""A lease that is lost while its body runs: the body is told, and nobody else."""

import asyncio
import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from tests.support.wait import wait_for
from tests.turns.conftest import Face

from giliran import INJECTED, Giliran, Lease, LeaseInterrupt, LeaseLost, heart
from giliran.testing import lose_lease

Body = Callable[[int], Any]


def until(told: Callable[[], bool], seconds: float = 5.0) -> None:
    """Spend time in short steps, as a body that can be interrupted does."""
    deadline = time.monotonic() + seconds
    while not told() and time.monotonic() < deadline:
        time.sleep(0.005)


async def auntil(told: Callable[[], bool], seconds: float = 5.0) -> None:
    """Same as `until`, awaited."""
    deadline = time.monotonic() + seconds
    while not told() and time.monotonic() < deadline:  # noqa: ASYNC110  as bodies do
        await asyncio.sleep(0.005)


def run_and_lose(face: Face, redis_url: str, to: str | None) -> list[type[BaseException]]:
    """Hold, lose the lease, go on; answer what was raised inside."""
    inside: list[type[BaseException]] = []

    def hold() -> None:
        with face.turns.hold("lock:1", ttl=1):
            lose_lease(redis_url, "lock:1", to=to)
            try:
                until(lambda: False)
            except BaseException as error:
                inside.append(type(error))
                raise

    async def ahold() -> None:
        async with face.turns.hold("lock:1", ttl=1):
            lose_lease(redis_url, "lock:1", to=to)
            try:
                await auntil(lambda: False)
            except BaseException as error:
                inside.append(type(error))
                raise

    with pytest.raises(LeaseLost) as told:
        face.run(ahold()) if face.awaited else hold()
    assert told.value.reason == ("taken" if to else "expired")
    return inside


@pytest.mark.parametrize("to", [None, "another"])
def test_a_body_is_interrupted_inside_and_lease_lost_leaves(
    face: Face, redis_url: str, to: str | None, client: redis.Redis
) -> None:
    assert run_and_lose(face, redis_url, to) == [face.interrupt]
    assert client.get("lock:1") == to  # What is another's stays as it is.
    assert face.turns.counts["lock.lost"] == 1


def test_a_flag_leaves_the_body_alone_but_not_its_result(turns: Giliran, redis_url: str) -> None:
    @turns.exclusive("lock:{order}", ttl=1, on_lost="flag", idempotency_key="r:{order}")
    def work(order: int, *, lease: Lease = INJECTED) -> str:
        lose_lease(redis_url, "lock:1")
        until(lambda: bool(lease.lost))
        ended.append(lease.lost)
        with pytest.raises(LeaseLost):
            lease.check()
        return "done"

    ended: list[str] = []
    with pytest.raises(LeaseLost):
        work(1)
    assert ended == ["expired"]
    with pytest.raises(LeaseLost):  # No record was written: it runs again.
        work(1)
    assert len(ended) == 2


def test_except_exception_does_not_swallow_an_interrupt(turns: Giliran, redis_url: str) -> None:
    swallowed: list[Exception] = []
    with pytest.raises(LeaseLost), turns.hold("lock:1", ttl=1):
        lose_lease(redis_url, "lock:1")
        try:
            until(lambda: False)
        except Exception as error:
            swallowed.append(error)
    assert swallowed == []


def test_the_bodys_own_error_wins(face: Face, redis_url: str) -> None:
    def body(order: int) -> None:
        lose_lease(redis_url, "lock:1")
        raise ZeroDivisionError

    guarded = face.guard(face.turns.exclusive("lock:{order}"), body)
    with pytest.raises(ZeroDivisionError):
        guarded(1)
    assert face.turns.counts["lock.lost"] == 1


def test_a_body_that_returns_after_the_loss_is_no_success(face: Face, redis_url: str) -> None:
    def body(order: int) -> str:
        lose_lease(redis_url, "lock:1")
        return "done"

    guarded = face.guard(face.turns.exclusive("lock:{order}"), body)
    with pytest.raises(LeaseLost, match="expired"):
        guarded(1)
    assert face.turns.counts["job.ran"] == 0


def test_a_body_is_told_when_it_runs_longer_than_max_hold(face: Face, client: redis.Redis) -> None:
    def body(order: int) -> None:
        until(lambda: False)

    async def abody(order: int) -> None:
        await auntil(lambda: False)

    decorate = face.turns.exclusive("lock:{order}", ttl=1, max_hold=1)
    started = time.monotonic()
    with pytest.raises(LeaseLost) as told:
        face.run(decorate(abody)(1)) if face.awaited else decorate(body)(1)
    assert told.value.reason == "max_hold"
    assert time.monotonic() - started < 1.2
    wait_for(lambda: not client.exists("lock:1"), timeout=0.5)


def test_a_blocked_event_loop_loses_no_lease(turns: Giliran) -> None:
    async def main() -> None:
        async with turns.hold("lock:1", ttl=1) as lease:
            time.sleep(3.1)  # noqa: ASYNC251  this is what the test is about
            lease.check()
        await turns.aclose()

    asyncio.run(main())


def test_cancellation_from_outside_stays_one_and_gives_the_lock_back(
    turns: Giliran, client: redis.Redis
) -> None:
    async def work() -> None:
        async with turns.hold("lock:1"):
            running.set()
            await asyncio.sleep(30)

    async def main() -> None:
        task = asyncio.create_task(work())
        await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        await turns.aclose()

    running = asyncio.Event()
    asyncio.run(main())
    wait_for(lambda: not client.exists("lock:1"))


def test_an_interrupt_never_hits_what_comes_after_its_body(turns: Giliran, redis_url: str) -> None:
    """Bodies end at about the moment at which the heartbeat finds their lease stolen."""
    escaped: list[BaseException] = []

    def worker(number: int) -> None:
        try:
            for turn in range(4):
                short_body(turns, redis_url, f"lock:{number}:{turn}", number / 1000)
                until(lambda: False, seconds=0.02)  # An interrupt that came late would hit this.
        except BaseException as error:
            escaped.append(error)

    threads = [threading.Thread(target=worker, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert escaped == []
    assert turns.counts["lock.lost"] == 160


def short_body(turns: Giliran, redis_url: str, key: str, extra: float) -> None:
    """Lose the lease at once, and end around its first renewal at a third of the TTL."""
    try:
        with turns.hold(key, ttl=1):
            lose_lease(redis_url, key)
            until(lambda: False, seconds=0.29 + extra)
    except LeaseLost:
        pass
    except LeaseInterrupt as interrupt:
        raise AssertionError("the interrupt left its guard") from interrupt
    else:
        raise AssertionError("a lost lease was reported as success")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_heartbeat_that_dies_is_started_again_by_the_next_lease(turns: Giliran) -> None:
    with pytest.raises(LeaseLost), turns.hold("lock:1", ttl=1, on_lost="flag") as lease:
        beating = next(t for t in threading.enumerate() if t.name == "giliran-heartbeat")
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(beating.ident or 0), ctypes.py_object(SystemExit)
        )
        turns.heartbeat.wake()
        wait_for(lambda: not beating.is_alive())
        wait_for(lambda: bool(lease.lost))  # Nobody tells it, but it knows.
        with turns.hold("lock:2", ttl=1) as other:
            first = other.trusted_until
            wait_for(lambda: other.trusted_until > first)


def test_an_error_it_does_not_know_costs_the_heartbeat_one_attempt(
    turns: Giliran, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([ArithmeticError("no such thing")])

    def fail_once(connection: Any, beat: Any) -> bytes:
        for failure in failures:
            raise failure
        return pack(connection, beat)

    pack = heart.Heart._pack
    monkeypatch.setattr(heart.Heart, "_pack", staticmethod(fail_once))
    with turns.hold("lock:1", ttl=1) as lease:
        first = lease.trusted_until
        wait_for(lambda: lease.trusted_until > first)
    assert turns.counts["lock.renew_failed"] == 1
