"""A lost lease interrupts the body in every pool, and nothing else.

A test sends to all pools at once and then looks at each: most of its time is spent waiting.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from tests.adapters.celery import tasks
from tests.adapters.celery.pools.conftest import SIZES, Pools
from tests.adapters.celery.rig import GIVE_UP, Rig, failure, outcome, state
from tests.support.wait import wait_for

POOLS = tuple(SIZES)


def test_the_body_is_interrupted_and_the_task_completes_later(
    servers: Rig, pools: Pools, order: str
) -> None:
    """`except Exception` is no excuse."""
    results = {
        pool: pools.send(pool, tasks.early, f"{order}-{pool}", "lose thief,excuse 10")
        for pool in POOLS
    }
    for pool, result in results.items():
        assert outcome(result) == {"order": f"{order}-{pool}", "run": 2}
        begin, raised, again, _ = servers.lines(f"{order}-{pool}")
        assert raised["error"] == "LeaseInterrupt"
        assert raised["at"] - begin["at"] < 2 * tasks.TTL
        assert again["fence"] > begin["fence"]


@pytest.mark.parametrize("wait", ["nap 10", "receive", "acquire"])
def test_a_blocking_call_is_interrupted(servers: Rig, pools: Pools, order: str, wait: str) -> None:
    """Not in threads, where the interrupt waits for the end of the call."""
    results = {
        pool: pools.send(pool, tasks.early, f"{order}-{pool}", f"lose,{wait}")
        for pool in ("prefork", "gevent", "solo")
    }
    for pool, result in results.items():
        assert outcome(result) == {"order": f"{order}-{pool}", "run": 2}
        begin, raised, *_ = servers.lines(f"{order}-{pool}")
        assert raised["at"] - begin["at"] < 2 * tasks.TTL


def test_in_threads_a_blocking_call_ends_first(servers: Rig, pools: Pools, order: str) -> None:
    assert outcome(pools.send("threads", tasks.early, order, "lose,nap 1.5,nap 10"))["run"] == 2
    begin, raised, *_ = servers.lines(order)
    assert 1.5 <= raised["at"] - begin["at"] < 3


def test_max_hold_ends_the_body_where_time_limits_do_not(
    servers: Rig, pools: Pools, order: str
) -> None:
    results = {
        pool: pools.send(pool, tasks.short, f"{order}-{pool}", "doze 10", **limits)
        for pool, limits in {
            "prefork": {},
            "threads": {"soft_time_limit": 1, "time_limit": 1},
            "gevent": {},
            "solo": {"soft_time_limit": 1, "time_limit": 1},
        }.items()
    }
    for pool, result in results.items():
        line = failure(result)
        assert line.startswith(f"lost the lease of 'lock:{order}-{pool}': max_hold")
        begin, raised = servers.lines(f"{order}-{pool}")
        assert raised["error"] == "LeaseInterrupt"
        assert 1 < raised["at"] - begin["at"] < 3


@pytest.mark.parametrize(("pool", "count"), [("threads", 32), ("gevent", 24), ("solo", 16)])
def test_an_interrupt_never_hits_the_next_task(
    servers: Rig, pools: Pools, order: str, pool: str, count: int
) -> None:
    """The bodies end about when the heartbeat, at TTL / 3, sees that their lock is gone."""
    seen: set[str] = set()
    for attempt in range(4):  # A busy machine may miss the race.
        prefix = f"{order}-{attempt}"
        results: list[Any] = []
        for number in range(count):
            plan = f"lose,doze {0.6 * number / count:.3f}"
            results += [
                pools.send(pool, tasks.early, f"{prefix}-{number}", plan),
                pools.send(pool, tasks.outer, f"{prefix}-c{number}", "doze 0.01"),
            ]
        assert {state(result) for result in results} == {"SUCCESS"}
        assert not any(servers.lines(f"{prefix}-c{number}", "raised") for number in range(count))
        seen |= {servers.lines(f"{prefix}-{number}")[1]["what"] for number in range(count)}
        if seen == {"raised", "end"}:
            break
    assert seen == {"raised", "end"}
    assert "LeaseInterrupt" not in pools.worker(pool).log()


def test_losses_leave_the_heartbeat_alone(servers: Rig, pools: Pools, order: str) -> None:
    """What is held beside or after them, for 3 x TTL, is kept; by one thread still."""
    losses: list[Any] = []
    results: dict[str, Any] = {}
    for pool in POOLS:
        losses += [
            pools.send(pool, tasks.early, f"{order}-{pool}-{number}", "lose,doze 10")
            for number in range(min(SIZES[pool], 10) + 2)
        ]
        results[pool] = pools.send(pool, tasks.early, f"{order}-{pool}", "doze 3,hearts")
    for pool, result in results.items():
        assert outcome(result) == {"order": f"{order}-{pool}", "run": 1}
        assert [line["count"] for line in servers.lines(f"{order}-{pool}", "hearts")] == [1]
    assert {outcome(result)["run"] for result in losses} == {2}


def test_a_thread_of_the_bodys_own_is_not_interrupted(
    servers: Rig, pools: Pools, order: str
) -> None:
    pools.send("threads", tasks.early, order, "lose,help 1,doze 10")
    raised, *_ = servers.wait_lines(order, "raised")
    helped, *_ = servers.wait_lines(order, "helped")
    assert helped["at"] > raised["at"]


@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_the_main_process_still_dumps_its_stacks(pools: Pools, order: str, pool: str) -> None:
    """Celery does so on SIGUSR1, the signal of its soft time limits."""
    assert outcome(pools.send(pool, tasks.early, order, "lose,nap 10"))["run"] == 2
    os.kill(pools.worker(pool).process.pid, signal.SIGUSR1)
    wait_for(lambda: "LOCAL VARIABLES" in pools.worker(pool).log(), GIVE_UP)
    assert outcome(pools.send(pool, tasks.early, order))["run"] == 3
