"""close: threads and connections end, and a later claim starts them anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.faces.face import elsewhere
from tests.support.leaks import giliran_threads
from tests.support.wait import wait_for

from giliran import Giliran, LeaseLost

if TYPE_CHECKING:
    import redis
    from tests.faces.face import Face


def test_a_closed_object_starts_anew(turns: Giliran, face: Face, client: redis.Redis) -> None:
    """Its leases are kept and its bodies are told, as before."""

    async def main() -> None:
        for _ in range(3):
            async with face.enter(turns.hold("lock:1", ttl=1)) as lease:
                began = lease.trusted_until
                wait_for(lambda: lease.trusted_until > began)  # noqa: B023  used at once
            turns.close()
        with pytest.raises(LeaseLost):
            async with face.enter(turns.hold("lock:1", ttl=1)):
                client.delete("lock:1")
                await face.pause(5)

    face.run(main())


def test_closing_ends_all_threads_and_leaves_leases_to_expire(
    turns: Giliran, client: redis.Redis
) -> None:
    with pytest.raises(LeaseLost) as lost, elsewhere(turns, "lock:1", ttl=1) as lease:
        turns.close()
        wait_for(lambda: not giliran_threads())
        assert client.pttl("lock:1") > 0
        wait_for(lambda: lease.lost)
    assert lost.value.reason == "expired"
    wait_for(lambda: not client.exists("lock:1"))


def test_closing_twice_or_before_anything_is_nothing(turns: Giliran) -> None:
    Giliran("redis://127.0.0.1:1").close()
    turns.close()
    turns.close()
