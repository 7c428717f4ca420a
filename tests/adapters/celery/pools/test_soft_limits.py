"""A soft time limit and a lost lease in the same child of a prefork pool: each does its own."""

from __future__ import annotations

from tests.adapters.celery import tasks
from tests.adapters.celery.pools.conftest import Pools
from tests.adapters.celery.rig import Rig, failure, outcome, state


def happened(rig: Rig, order: str) -> list[str]:
    return [line["what"] for line in rig.lines(order)]


def test_a_lease_lost_after_the_soft_limit(servers: Rig, pools: Pools, order: str) -> None:
    plan = "catch 10,lose,nap 10"
    result = pools.send("prefork", tasks.early, order, plan, soft_time_limit=1)
    assert outcome(result) == {"order": order, "run": 2}
    assert happened(servers, order) == ["begin", "soft limit", "raised", "begin", "end"]
    assert servers.lines(order, "raised")[0]["error"] == "LeaseInterrupt"


def test_the_soft_limit_after_a_lost_lease(servers: Rig, pools: Pools, order: str) -> None:
    """Only a body that ignores the loss gets that far; its own error wins."""
    plan = "lose,endure 10,nap 10"
    result = pools.send("prefork", tasks.early, order, plan, soft_time_limit=1)
    assert failure(result) == "SoftTimeLimitExceeded()"
    assert happened(servers, order) == ["begin", "endured", "raised"]


def test_the_soft_limit_after_tasks_that_ended_as_they_were_interrupted(
    servers: Rig, pools: Pools, order: str
) -> None:
    naps = [0.30 + 0.008 * number for number in range(8)]
    results = [
        pools.send("prefork", tasks.early, f"{order}-{number}", f"lose,doze {nap:.3f}")
        for number, nap in enumerate(naps)
    ]
    assert {state(result) for result in results} == {"SUCCESS"}
    result = pools.send("prefork", tasks.early, order, "catch 10", soft_time_limit=1)
    assert outcome(result) == {"order": order, "run": 1}
    assert happened(servers, order) == ["begin", "soft limit", "end"]
