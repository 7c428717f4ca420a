"""Several resources: all of them or none, whether or not one script reaches them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import redis
from tests.faces.face import elsewhere, later
from tests.support.wait import wait_for

from giliran import (
    INJECTED,
    AlreadyHeld,
    Contended,
    Event,
    Giliran,
    KeyReused,
    Lease,
    LeaseLost,
    Skipped,
    skip,
    wait,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faces.face import Face

    from giliran.embedded import EmbeddedServer

ORDER, WALLET = "lock:order:1", "lock:wallet:7"
BOTH = [WALLET, ORDER]  # Not in the order in which they are claimed.
FENCES = {"{lock:order:1}:fence", "{lock:wallet:7}:fence"}


@pytest.fixture
def turns(empty_place: EmbeddedServer) -> Iterator[Giliran]:
    turns = Giliran(empty_place.url)
    yield turns
    turns.close()


@pytest.fixture
def client(empty_place: EmbeddedServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(empty_place.url, decode_responses=True) as connected:
        yield connected


def held(client: redis.Redis) -> list[str]:
    """What is locked."""
    found: list[str] = list(client.scan_iter(count=1000))
    return sorted(key for key in found if not key.startswith("{"))


def test_holds_all_of_them_and_releases_all(
    turns: Giliran, face: Face, client: redis.Redis
) -> None:
    @face.guard(turns.exclusive(["lock:wallet:{wallet}", "lock:order:{order}"]))
    async def refund(order: int, wallet: int, *, lease: Lease = INJECTED) -> dict[str, int]:
        assert held(client) == [ORDER, WALLET]
        for key in (ORDER, WALLET):
            value = str(client.get(key))
            assert value.startswith(f"{lease.token};v=1;fence={lease.fences[key]};")
            assert 0 < client.pttl(key) <= 30_000
        return dict(lease.fences)

    before = face.run(refund(1, 7))
    assert set(client.keys()) == FENCES
    after = face.run(refund(wallet=7, order=1))
    assert list(before) == [ORDER, WALLET]
    assert all(after[key] > before[key] for key in before)


def test_a_block_holds_them_too(turns: Giliran, face: Face, client: redis.Redis) -> None:
    async def main() -> None:
        async with face.enter(turns.hold([*BOTH, ORDER])) as lease:
            assert held(client) == [ORDER, WALLET]
            assert lease.key == f"{ORDER} {WALLET}"
            assert list(lease.fences) == [ORDER, WALLET]
            with pytest.raises(TypeError, match="each with a fence of its own"):
                _ = lease.fence

    face.run(main())
    assert held(client) == []


def test_two_that_are_one_are_held_as_one(turns: Giliran, face: Face, client: redis.Redis) -> None:
    """A transfer from a wallet to itself."""

    @face.guard(turns.exclusive(["wallet:{sender}", "wallet:{receiver}"]))
    async def transfer(sender: int, receiver: int, *, lease: Lease = INJECTED) -> int:
        assert held(client) == ["wallet:1"]
        return lease.fence

    assert face.run(transfer(1, 1)) > 0


@pytest.mark.parametrize("busy", [ORDER, WALLET])
def test_one_that_is_busy_is_named_with_its_holder_and_nothing_is_held(
    turns: Giliran, face: Face, client: redis.Redis, busy: str
) -> None:
    async def main() -> None:
        with elsewhere(turns, busy, ttl=20):
            with pytest.raises(Contended, match=f"'{busy}' is held by hold on") as told:
                async with face.enter(turns.hold(BOTH)):
                    pytest.fail("must not run")
            assert told.value.key == busy
            assert told.value.remaining == pytest.approx(20, abs=5)
            assert held(client) == [busy]
        async with face.enter(turns.hold(BOTH)):
            pass

    face.run(main())


def test_a_plain_call_that_skips_names_it_too(turns: Giliran, face: Face) -> None:
    @face.guard(turns.exclusive(["order:{order}", "wallet:{wallet}"], on_contention=skip()))
    async def refund(order: int, wallet: int) -> None:
        pytest.fail("must not run")

    with elsewhere(turns, "wallet:2"), pytest.raises(Skipped) as told:
        face.run(refund(1, 2))
    assert told.value.key == "wallet:2"


def test_events_name_all_of_them(empty_place: EmbeddedServer) -> None:
    events: list[Event] = []
    turns = Giliran(empty_place.url, scope="acme", listeners=[events.append])
    with turns.hold(BOTH) as lease:
        told = events[-1]
        assert told.name == "lock.acquired"
        assert told.lock_key == lease.key == f"acme:{ORDER} acme:{WALLET}"
        assert told.resource_id == f"{WALLET} {ORDER}"
        assert told.fields["fence"] == dict(lease.fences)
        with pytest.raises(AlreadyHeld, match=f"'acme:{WALLET}'"), turns.hold(WALLET):
            pytest.fail("must not run")
    turns.close()


def test_who_waits_gets_them_when_all_are_free(turns: Giliran, face: Face) -> None:
    @face.guard(turns.exclusive(["order:{order}", "wallet:{wallet}"], on_contention=wait(20)))
    async def refund(order: int, wallet: int) -> str:
        return "ran"

    async def main() -> None:
        release = threading.Event()

        def hold_both() -> None:
            with turns.hold("wallet:2"):
                started.set()
                release.wait(10)

        started = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(hold_both)
            started.wait(10)
            with later(release.set, 0.15):
                assert await refund(1, 2) == "ran"
            done.result()

    face.run(main())


def test_all_are_renewed(turns: Giliran, face: Face, client: redis.Redis) -> None:
    async def main() -> None:
        async with face.enter(turns.hold(BOTH, ttl=1)) as lease:
            ends = lease.trusted_until + 1.5
            while lease.trusted_until < ends:
                await face.pause(0.01)
                assert held(client) == [ORDER, WALLET]
                lease.check()

    face.run(main())
    assert turns.counts["lock.lost"] == 0


@pytest.mark.parametrize("lost", [ORDER, WALLET])
def test_losing_one_is_losing_all_and_the_others_are_free_at_once(
    turns: Giliran, face: Face, client: redis.Redis, lost: str
) -> None:
    ran: list[str] = []

    @face.guard(turns.exclusive(["lock:order:{order}", "lock:wallet:{wallet}"], ttl=1))
    async def refund(order: int, wallet: int) -> None:
        client.set(lost, "somebody else's", px=20_000)
        try:
            await face.pause(5)
        except face.interrupt:
            ran.append("interrupted")
            raise

    with pytest.raises(LeaseLost, match="taken; another holder has it now"):
        face.run(refund(1, 7))
    assert ran == ["interrupted"]
    wait_for(lambda: held(client) == [lost], 0.5)  # Before a TTL of 1 s: given back.
    assert client.get(lost) == "somebody else's"


@pytest.mark.parametrize("lost", [ORDER, WALLET])
def test_who_ends_without_one_of_them_records_nothing(
    turns: Giliran, face: Face, client: redis.Redis, lost: str
) -> None:
    @face.guard(
        turns.exclusive(
            ["lock:order:{order}", "lock:wallet:{wallet}"], idempotency_key="refund:{order}"
        )
    )
    async def refund(order: int, wallet: int) -> int:
        ran.append(order)
        if len(ran) == 1:
            client.delete(lost)
        return len(ran)

    ran: list[int] = []
    with pytest.raises(LeaseLost):
        face.run(refund(1, 7))
    wait_for(lambda: held(client) == [])
    assert face.run(refund(1, 7)) == 2
    assert face.run(refund(1, 7)) == 2
    assert ran == [1, 1]


def test_the_record_is_found_though_another_resource_is_busy(turns: Giliran, face: Face) -> None:
    @face.guard(
        turns.exclusive(
            ["lock:order:{order}", "lock:wallet:{wallet}"], idempotency_key="refund:{order}"
        )
    )
    async def refund(order: int, wallet: int) -> int:
        return wallet

    assert face.run(refund(1, 7)) == 7
    with elsewhere(turns, WALLET):
        assert face.run(refund(1, 7)) == 7
    with pytest.raises(KeyReused):
        face.run(refund(1, 8))


def test_opposite_orders_never_wait_for_each_other(
    turns: Giliran, empty_place: EmbeddedServer
) -> None:
    """Whoever needs both, in whatever order it names them, and who needs one of them."""
    inside: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    crowded: list[str] = []

    def work(*keys: str) -> None:
        own = Giliran(empty_place.url)
        for _ in range(8):
            with own.hold(list(keys), ttl=5, wait=30):
                for key in keys:
                    inside[key] += 1
                    crowded.extend([key] * (inside[key] - 1))
                for key in keys:
                    inside[key] -= 1
                runs[" ".join(keys)] += 1
        own.close()

    with ThreadPoolExecutor(6) as pool:
        wanted = [("a", "b"), ("b", "a"), ("b", "c", "a"), ("c", "a"), ("b",), ("c", "b")]
        for done in [pool.submit(work, *keys) for keys in wanted]:
            done.result(40)
    assert crowded == []
    assert set(runs.values()) == {8}


def test_one_script_takes_those_that_share_a_slot(turns: Giliran, client: redis.Redis) -> None:
    with turns.hold(["{user:1}:wallet", "{user:1}:order"]) as lease:
        assert lease.together
        assert list(lease.fences) == ["{user:1}:order", "{user:1}:wallet"]
        assert client.exists("{user:1}:wallet")


def test_a_line_is_not_passed_by(turns: Giliran, client: redis.Redis) -> None:
    """A process that waits for one of them was there first."""
    got = threading.Event()
    release = threading.Event()

    def wait_for_the_wallet() -> None:
        with turns.hold(WALLET, wait=20):
            got.set()
            release.wait(10)

    with ThreadPoolExecutor(1) as pool:
        with turns.hold(WALLET):
            waiting = pool.submit(wait_for_the_wallet)
            wait_for(lambda: client.exists("{lock:wallet:7}:line"))
        for _ in range(3):
            with pytest.raises(Contended) as told, turns.hold(BOTH):
                pytest.fail("must not run")
            assert told.value.key == WALLET
        assert got.wait(10)
        release.set()
        waiting.result()


HOLD = (
    "import sys; from giliran import Giliran\n"
    "with Giliran(sys.argv[1]).hold(sys.argv[2:], ttl=30) as lease:\n"
    "    print(*lease.fences.values(), flush=True); sys.stdin.read()"
)


def test_all_of_a_killed_holder_are_reclaimed(empty_place: EmbeddedServer) -> None:
    keys = ["a", "b", "c", "d", "e"]
    turns = Giliran(empty_place.url, reclaim="proven")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, empty_place.url, *keys],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        before = [int(fence) for fence in process.stdout.readline().split()]
        process.kill()
        process.wait()
    with turns.hold(keys) as lease:
        assert all(now > then for now, then in zip(lease.fences.values(), before, strict=True))
    assert turns.counts["lock.reclaimed"] == len(keys)
    turns.close()
