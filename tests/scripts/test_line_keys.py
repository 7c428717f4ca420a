"""Where the keys of a line lie, and that they go with it."""

from __future__ import annotations

from binascii import crc_hqx
from typing import TYPE_CHECKING

import pytest
from tests.scripts.backends import FENCE
from tests.scripts.words import B, finish, leave, park, plain, sweep

from giliran import keys
from giliran.scripts import CLAIM, FINISH, LEAVE, OFFER, PARK, SWEEP

if TYPE_CHECKING:
    from tests.scripts.backends import Backend


def test_every_key_goes_with_the_last_of_the_line(backend: Backend) -> None:
    backend.run(CLAIM, plain(token=B))
    backend.run(PARK, park("t1"))
    backend.run(CLAIM, plain(publication="w", ticket="w", alive="15000"))
    assert backend.run(FINISH, finish(token=B))[3][1] == "t1"
    # Its copy is faster than the note that the broker has it.
    assert backend.run(CLAIM, plain(ticket="t1"))[1] == "held"
    assert backend.run(OFFER, ("t1", B, "taken"))[1] == "noted"
    assert backend.run(FINISH, finish())[3][:2] == ["wait", "w"]
    assert backend.run(LEAVE, leave("w"))[1:] == []
    backend.run(SWEEP, sweep())
    assert set(backend.dump()) == {FENCE}


def test_a_bell_nobody_hears_goes_within_a_second(backend: Backend) -> None:
    backend.run(CLAIM, plain(token=B))
    backend.run(CLAIM, plain(publication="w", ticket="w", alive="15000"))
    backend.run(FINISH, finish(token=B))
    left = backend.dump()["{K}:parked:w"].px
    assert left is not None
    assert left <= 1_000


def slot(key: str) -> int:
    """Answer the cluster slot of a key."""
    tag = key.partition("{")[2]
    inner, brace, _ = tag.partition("}")
    return crc_hqx((inner if brace and inner else key).encode(), 0) % 16384


@pytest.mark.parametrize("key", ["K", "lock:{42}:x", "lock:{a}{b}", "x{a}", "lock é\n"])
def test_all_keys_of_a_resource_share_a_slot(key: str) -> None:
    assert slot("123456789") == 12739
    named = [
        *keys.line(key),
        keys.due(key),
        keys.dead(key),
        keys.fence(key),
        keys.bell(key, "odd{ticket}"),
        keys.record(key, "{i}"),
        keys.delivery(key, "odd{ticket}"),
    ]
    assert {slot(one) for one in named} == {slot(key)}


def test_the_scripts_ring_the_bell_that_waiters_listen_to(backend: Backend) -> None:
    key, ticket = "lock:{42}:x", "odd{ticket}.%2F"
    names = (key, *keys.line(key))
    claimed = (key, keys.fence(key), *keys.line(key))
    backend.run(CLAIM, plain(token=B), claimed)
    backend.run(CLAIM, plain(publication="w", ticket=ticket, alive="9000"), claimed)
    assert backend.run(FINISH, finish(token=B), names)[3][1] == ticket
    assert keys.bell(key, ticket) in backend.dump()
    backend.run(LEAVE, leave(ticket), names)
    assert set(backend.dump()) == {keys.fence(key)}
