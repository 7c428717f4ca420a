"""hold: a resource for a block of code, and the errors of those who cannot have it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.faces.face import elsewhere, later
from tests.support.wait import wait_for

from giliran import AlreadyHeld, Contended, Giliran, LeaseLost

if TYPE_CHECKING:
    import redis
    from tests.faces.face import Face


def test_contended_says_who_and_for_how_long(turns: Giliran, face: Face) -> None:
    async def main() -> None:
        with elsewhere(turns, "lock:1", ttl=20) as lease:
            with pytest.raises(Contended, match="'lock:1' is held by hold on") as told:
                async with face.enter(turns.hold("lock:1")):
                    pytest.fail("must not run")
            assert told.value.key == "lock:1"
            assert told.value.remaining is not None
            assert 15 < told.value.remaining <= 20
            assert lease.token not in str(told.value) + told.value.holder

    face.run(main())


def test_a_foreign_lock_without_end_is_never_broken(
    turns: Giliran, face: Face, client: redis.Redis
) -> None:
    async def main() -> None:
        client.set("lock:1", "somebody else's")
        with pytest.raises(Contended, match="held by another program without a known end") as told:
            async with face.enter(turns.hold("lock:1", wait=0.2)):
                pytest.fail("must not run")
        assert told.value.remaining is None
        assert told.value.holder == ""
        assert client.get("lock:1") == "somebody else's"
        assert client.pttl("lock:1") == -1
        client.delete("lock:1")

    face.run(main())


def test_waiting_gets_the_turn_when_the_holder_leaves(turns: Giliran, face: Face) -> None:
    async def main() -> None:
        stack = elsewhere(turns, "lock:1")
        stack.__enter__()
        with later(lambda: stack.__exit__(None, None, None), 0.1):
            async with face.enter(turns.hold("lock:1", wait=10)) as lease:
                assert not lease.lost

    face.run(main())


def test_waiting_ends_with_a_last_try(turns: Giliran, face: Face, client: redis.Redis) -> None:
    """A lock that frees just before the end of the budget is taken at its end."""

    async def main() -> None:
        client.set("lock:1", "another", px=480)
        async with face.enter(turns.hold("lock:1", wait=0.5)):
            pass
        client.set("lock:1", "another", px=20_000)
        started = time.monotonic()
        with pytest.raises(Contended):
            async with face.enter(turns.hold("lock:1", wait=0.3)):
                pytest.fail("must not run")
        assert 0.3 <= time.monotonic() - started < 0.8

    face.run(main())


def test_a_hold_is_entered_once_at_a_time(turns: Giliran, face: Face) -> None:
    async def main() -> None:
        hold = turns.hold("lock:1")
        for _ in range(2):
            async with face.enter(hold):
                with pytest.raises(RuntimeError, match="make a new one for each block"):
                    async with face.enter(hold):
                        pytest.fail("must not run")

    face.run(main())


def test_a_nested_hold_is_refused(turns: Giliran, face: Face) -> None:
    async def main() -> None:
        async with face.enter(turns.hold("lock:1")):
            with pytest.raises(AlreadyHeld) as told:
                async with face.enter(turns.hold("lock:1")):
                    pytest.fail("must not run")
            assert told.value.key == "lock:1"

    face.run(main())


def test_a_lost_lease_is_held_no_more(turns: Giliran, face: Face, client: redis.Redis) -> None:
    """Who lost the resource may ask for it again, even before the block is left."""

    async def main() -> None:
        with pytest.raises(LeaseLost):
            async with face.enter(turns.hold("lock:1", ttl=1, on_lost="flag")) as lease:
                client.delete("lock:1")
                wait_for(lambda: lease.lost)
                async with face.enter(turns.hold("lock:1")) as again:
                    assert again.fence > lease.fence

    face.run(main())


def test_leaving_twice_is_an_error(turns: Giliran) -> None:
    hold = turns.hold("lock:1")
    with hold:
        pass
    with pytest.raises(RuntimeError, match="was not entered"):
        hold.__exit__(None, None, None)


def test_the_late_release_of_one_never_touches_the_next(
    turns: Giliran, face: Face, client: redis.Redis
) -> None:
    async def main() -> None:
        with pytest.raises(LeaseLost, match="taken"):
            async with face.enter(turns.hold("lock:1", on_lost="flag")):
                client.set("lock:1", "the next", px=20_000)
        assert client.get("lock:1") == "the next"

    face.run(main())


def test_the_loss_of_an_outer_lease_ends_the_inner_one_too(
    turns: Giliran, face: Face, client: redis.Redis
) -> None:
    """The inner resource is given back, and what leaves is the outer loss."""

    async def main() -> None:
        with pytest.raises(LeaseLost) as lost:
            async with (
                face.enter(turns.hold("lock:outer", ttl=1)),
                face.enter(turns.hold("lock:inner", ttl=60)),
            ):
                client.delete("lock:outer")
                await face.pause(5)
        assert lost.value.key == "lock:outer"
        assert not client.exists("lock:inner")

    face.run(main())


def test_both_leases_lost_at_once_leave_nothing_behind(
    turns: Giliran, face: Face, client: redis.Redis
) -> None:
    async def main() -> None:
        with pytest.raises(LeaseLost):
            async with (
                face.enter(turns.hold("lock:outer", ttl=1)),
                face.enter(turns.hold("lock:inner", ttl=1)),
            ):
                client.flushall()
                await face.pause(5)
        await face.pause(0.02)  # Nothing that was fired hits what comes after.
        async with face.enter(turns.hold("lock:outer")), face.enter(turns.hold("lock:inner")):
            await face.pause(0.02)

    face.run(main())
