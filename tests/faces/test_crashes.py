"""once, after a worker was killed half-way: the record says so, and the rules decide."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Literal

import pytest
from tests.support.wait import wait_for

from giliran import INJECTED, GaveUp, Giliran, InDoubt, Lease

if TYPE_CHECKING:
    import redis
    from tests.faces.face import Face

WORKER = """
import os, signal, sys
from giliran import Giliran

turns = Giliran(sys.argv[1])

@turns.exclusive("lock:{order}", ttl=1, idempotency_key="refund:{order}")
def refund(order: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)

refund(1)
"""


def crash(url: str, client: redis.Redis) -> None:
    """Let a worker be killed half-way, and its lock end by its TTL."""
    done = subprocess.run([sys.executable, "-c", WORKER, url], check=False)
    assert done.returncode == -9
    assert 0 < client.pttl("lock:1") <= 1000
    wait_for(lambda: not client.exists("lock:1"), 2)


AfterCrash = Literal["retry", "hold"]


def test_after_a_kill_the_rules_decide(
    turns: Giliran, face: Face, client: redis.Redis, redis_url: str
) -> None:
    """One killed attempt: in doubt if so told, given up without recoveries, else taken over."""

    def refund(after_crash: AfterCrash, recoveries: int) -> int:
        @face.guard(
            turns.exclusive(
                "lock:{order}",
                idempotency_key="refund:{order}",
                after_crash=after_crash,
                recoveries=recoveries,
            )
        )
        async def work(order: int, *, lease: Lease = INJECTED) -> int:
            return lease.attempt

        return face.run(work(1))

    crash(redis_url, client)
    with pytest.raises(InDoubt, match="find out whether it happened") as doubt:
        refund("hold", 5)
    assert doubt.value.idempotency_key == "refund:1"
    assert doubt.value.attempt == 1
    with pytest.raises(GaveUp, match="1 attempts crashed") as gave_up:
        refund("retry", 0)
    assert gave_up.value.reason == "recoveries"
    assert not client.exists("lock:1")
    assert refund("retry", 5) == 2
    assert refund("hold", 0) == 2
