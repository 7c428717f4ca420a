"""What guarded functions promise when all goes well, and when they meet each other."""

import asyncio
import dataclasses
import inspect
import threading
from typing import Any

import pydantic
import pytest
import redis
from tests.support.wait import wait_for
from tests.turns.conftest import Face

from giliran import (
    INJECTED,
    Contended,
    GaveUp,
    Giliran,
    InDoubt,
    KeyReused,
    Lease,
    Skipped,
    current_lease,
    fail,
    requeue,
    skip,
    wait,
)


@dataclasses.dataclass(frozen=True)
class Receipt:
    order: int
    lines: list[str]


class Model(pydantic.BaseModel):
    order: int


def receipt(order: int) -> Receipt:
    return Receipt(order, ["one"])


def model(order: int) -> Model:
    return Model(order=order)


def nothing(order: int) -> None: ...


@pytest.mark.parametrize("body", [receipt, model, nothing])
def test_a_repeat_is_answered_with_the_same_result(face: Face, body: Any) -> None:
    ran: list[int] = []

    def counted(order: int) -> Any:
        ran.append(order)
        return body(order)

    counted.__annotations__["return"] = body.__annotations__["return"]
    once = face.guard(face.turns.once("receipt:{order}"), counted)
    assert once(1) == once(1) == body(1)
    assert once(2) == body(2)
    assert ran == [1, 2]


def test_a_key_with_other_arguments_is_refused_and_does_not_run(turns: Giliran) -> None:
    @turns.once("receipt:{order}", fingerprint=("amount",))
    def pay(order: int, amount: int, note: str = "") -> int:
        return amount

    assert pay(1, 5, "a") == pay(1, 5, "b") == 5
    with pytest.raises(KeyReused, match="used before with other arguments"):
        pay(1, 6)


class Declined(Exception):
    pass


def test_failures_are_forgotten_unless_they_are_remembered(face: Face) -> None:
    ran: list[int] = []

    def decline(order: int) -> int:
        ran.append(order)
        raise Declined("no funds") if order == 1 else ValueError("try again")

    once = face.guard(face.turns.once("receipt:{order}", remember=[Declined]), decline)
    for _ in range(2):
        with pytest.raises(Declined, match="no funds"):
            once(1)
        with pytest.raises(ValueError, match="try again"):
            once(2)
    assert ran == [1, 2, 2]


def crash(turns: Giliran, after_crash: Any, recoveries: int = 5) -> Any:
    @turns.once("receipt:{order}", after_crash=after_crash, recoveries=recoveries)
    def once(order: int, *, lease: Lease = INJECTED) -> int:
        if order < 0:
            raise KeyboardInterrupt
        return lease.attempt

    @turns.once("receipt:{order}", after_crash=after_crash, recoveries=recoveries)
    def crashing(order: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crashing(1)
    return once, crashing


def test_after_a_crash_the_next_attempt_takes_over(turns: Giliran) -> None:
    once, _ = crash(turns, "retry")
    assert once(1) == 2


def test_after_a_crash_the_effect_is_in_doubt_if_so_told(turns: Giliran) -> None:
    once, _ = crash(turns, "hold")
    with pytest.raises(InDoubt, match="attempt 1"):
        once(1)


def test_a_job_that_crashes_again_and_again_gives_up(turns: Giliran) -> None:
    once, crashing = crash(turns, "retry", recoveries=1)
    with pytest.raises(KeyboardInterrupt):
        crashing(1)
    with pytest.raises(GaveUp) as told:
        once(1)
    assert told.value.reason == "recoveries"


@pytest.mark.parametrize(
    ("policy", "error"),
    [(requeue(), Contended), (fail(), Contended), (skip(), Skipped), (wait(0.1), Contended),
     (wait(0.1, then="skip"), Skipped), (None, Contended)],
)  # fmt: skip
def test_a_contended_plain_call_raises_and_does_not_run(
    face: Face, client: redis.Redis, policy: Any, error: type[Exception]
) -> None:
    ran: list[int] = []

    def body(order: int) -> None:
        ran.append(order)

    guarded = face.guard(face.turns.exclusive("lock:{order}", on_contention=policy), body)
    client.set("lock:1", "another program's token", px=20_000)
    with pytest.raises(error):
        guarded(1)
    assert ran == []
    assert client.get("lock:1") == "another program's token"


def test_waiting_gets_its_turn_when_the_holder_is_gone(face: Face, client: redis.Redis) -> None:
    guarded = face.guard(face.turns.exclusive("lock:{order}", on_contention=wait(10)), nothing)
    client.set("lock:1", "another", px=150)
    guarded(1)
    assert face.turns.counts["job.ran"] == 1


def test_two_threads_take_turns(turns: Giliran) -> None:
    inside: list[int] = []
    most: list[int] = []

    @turns.exclusive("lock:{order}", on_contention=wait(20))
    def work(order: int) -> None:
        inside.append(order)
        most.append(len(inside))
        threading.Event().wait(0.002)
        inside.pop()

    threads = [threading.Thread(target=work, args=(1,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 8


def test_the_lease_is_passed_to_who_asks_and_hidden_from_the_signature(turns: Giliran) -> None:
    @turns.exclusive("lock:{order}", ttl=5)
    def work(order: int, *, lease: Lease = INJECTED) -> Lease:
        assert current_lease() is lease
        assert lease.key == "lock:1"
        assert 4 < lease.remaining() < 5
        lease.check()
        return lease

    assert list(inspect.signature(work).parameters) == ["order"]
    lease = work(1)
    assert lease.lost == "ended"
    assert lease.remaining() == 0
    assert work(1).fence > lease.fence
    with pytest.raises(LookupError):
        current_lease()
    with pytest.raises(TypeError):
        work()  # type: ignore[call-arg]


def test_methods_lock_by_their_arguments_not_by_self(turns: Giliran) -> None:
    class Shop:
        @turns.exclusive("lock:{order}", idempotency_key="refund:{order}")
        def refund(self, order: int) -> int:
            return order

    assert Shop().refund(1) == Shop().refund(1) == 1
    assert turns.counts["job.replayed"] == 1


def test_scope_comes_first_in_the_key(redis_url: str, client: redis.Redis) -> None:
    tenants = iter(["acme:1", "beta"])
    turns = Giliran(redis_url, scope=lambda: next(tenants))
    for expected in ("acme%3A1:lock:1", "beta:lock:1"):
        with turns.hold("lock:1") as lease:
            assert lease.key == expected
            assert client.exists(expected)
    turns.close()


def test_a_listener_that_raises_breaks_no_job(redis_url: str) -> None:
    def broken(_: object) -> None:
        raise RuntimeError

    turns = Giliran(redis_url, listeners=[broken])
    with turns.hold("lock:1"):
        pass
    assert turns.counts["listener.failed"] == turns.counts["job.ran"] * 3
    turns.close()


def test_nested_guards_of_other_keys_are_fine_and_of_the_same_key_refused(turns: Giliran) -> None:
    async def main() -> None:
        async with turns.hold("lock:1"), turns.hold("lock:2"):
            assert current_lease().key == "lock:2"
        await turns.aclose()

    asyncio.run(main())


def test_two_event_loops_in_two_threads_share_one_object(turns: Giliran) -> None:
    async def main(number: int) -> None:
        for _ in range(20):
            async with turns.hold("lock:1", wait=20):
                inside.append(number)
                await asyncio.sleep(0)
                inside.append(number)
        await turns.aclose()

    inside: list[int] = []
    threads = [threading.Thread(target=asyncio.run, args=(main(n),)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside[::2] == inside[1::2]
    assert len(inside) == 80


def test_one_thread_keeps_a_hundred_leases(turns: Giliran) -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(hold(number))
        await turns.aclose()

    async def hold(number: int) -> None:
        async with turns.hold(f"lock:{number}", ttl=3) as lease:
            first = lease.trusted_until
            await asyncio.to_thread(wait_for, lambda: lease.trusted_until > first)
            beating.append([t.name for t in threading.enumerate()].count("giliran-heartbeat"))

    beating: list[int] = []
    asyncio.run(main())
    assert beating == [1] * 100
    wait_for(lambda: turns.counts["lock.lost"] == 0)
