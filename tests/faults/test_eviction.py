"""A server that may evict keys takes leases away: the body is told, and nothing is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis
from tests.support.wait import wait_for

from giliran import LeaseLost

if TYPE_CHECKING:
    from tests.conftest import MakeServer
    from tests.faults.conftest import Connect


def test_an_evicted_lock_is_a_loss(make_server: MakeServer, connect: Connect) -> None:
    server = make_server("--maxmemory-policy", "allkeys-random")
    turns = connect(server.url)
    ran: list[int] = []

    @turns.exclusive("lock:{order}", ttl=1, idempotency_key="refund:{order}")
    def refund(order: int) -> int:
        ran.append(order)
        if len(ran) == 1:
            evict_all(server.url)
            wait_for(lambda: False)  # Until it is told.
        return order

    with pytest.raises(LeaseLost) as told:
        refund(1)
    assert told.value.reason == "expired"
    assert refund(1) == 1
    assert ran == [1, 1]


def evict_all(url: str) -> None:
    """Let the server run out of memory, until it has evicted every key."""
    with redis.Redis.from_url(url) as client:
        client.config_set("maxmemory", 1)
        wait_for(lambda: client.exists("lock:1") == 0 or client.set("a", "b", px=1))
        client.config_set("maxmemory", 0)
