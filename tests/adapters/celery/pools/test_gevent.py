"""Many bodies in one thread: the heartbeat beside them is a thread of the system's."""

from __future__ import annotations

from tests.adapters.celery import tasks
from tests.adapters.celery.pools.conftest import Pools
from tests.adapters.celery.rig import Rig, outcome


def test_a_body_that_computes_keeps_its_lease(servers: Rig, pools: Pools, order: str) -> None:
    """And those whose greenlets it keeps from running keep theirs."""
    waiting = pools.send("gevent", tasks.early, f"{order}-waits", "nap 0.5")
    servers.wait_lines(f"{order}-waits", "begin")
    busy = pools.send("gevent", tasks.early, order, "compute 2.5")
    assert outcome(busy) == {"order": order, "run": 1}
    assert outcome(waiting) == {"order": f"{order}-waits", "run": 1}


def test_a_loss_is_told_when_the_log_is_free(servers: Rig, pools: Pools, order: str) -> None:
    """A log handler's lock is gevent's: the heartbeat must not wait for it beside that body."""
    victim = f"{order}-victim"
    robbed = pools.send("gevent", tasks.early, victim, "nap 10")
    servers.wait_lines(victim, "begin")
    busy = pools.send("gevent", tasks.early, order, f"rob {victim},chat 2.5")
    assert outcome(busy) == {"order": order, "run": 1}
    assert outcome(robbed) == {"order": victim, "run": 2}
    assert pools.told("gevent", "lock.lost", victim) == 1


def test_a_body_that_computes_is_told_of_its_loss(servers: Rig, pools: Pools, order: str) -> None:
    """It cannot be interrupted before it switches."""
    assert outcome(pools.send("gevent", tasks.early, order, "lose,compute 1,check"))["run"] == 2
    assert f"{order} was told" in pools.worker("gevent").log()
    assert len(servers.lines(order, "end")) == 1


def test_fifty_bodies_at_once_have_one_heartbeat(servers: Rig, pools: Pools, order: str) -> None:
    names = [f"{order}-{number}" for number in range(50)]
    results = [pools.send("gevent", tasks.early, name, "gate") for name in names]
    for name in names:
        servers.wait_lines(name, "begin")
    assert outcome(pools.send("gevent", tasks.early, order, "nap 1.2,hearts"))["run"] == 1
    assert [line["count"] for line in servers.lines(order, "hearts")] == [1]
    assert all(servers.held(name) for name in names)
    for name in names:
        servers.open_gate(name)
    assert [outcome(result)["run"] for result in results] == [1] * 50
