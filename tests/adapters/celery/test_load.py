"""Many tasks on few resources, with no retry to spend: all of them run, each of them once.

The quorum queue drops a message at its fourth delivery. Tasks are put back more often than that,
and lose nothing: what is put back is a new message, so that the broker's count stays at one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.adapters.celery.matrix.bench import Bench, Broker
from tests.adapters.celery.matrix.cells import Cell
from tests.adapters.celery.rig import GIVE_UP, Rig, state
from tests.support.wait import wait_for

RESOURCES, EACH = 4, 50
LIMIT = 3
QUEUES: dict[str, dict[str, Any]] = {
    "classic": {"x-queue-type": "classic"},
    "quorum": {"x-queue-type": "quorum", "x-delivery-limit": LIMIT},
}


@pytest.fixture(scope="module")
def bench(request: pytest.FixtureRequest, servers: Rig) -> Iterator[Bench]:
    """A worker with three children on a queue of the kind that the test asks for."""
    kind: str = request.param
    if kind == "redis":
        broker = Broker(servers.database(3))
    else:
        broker = Broker(request.getfixturevalue("rabbit").url, QUEUES[kind])
    with Bench(servers, broker, Cell(kind, "prefork")) as made:
        made.start()
        yield made


@pytest.mark.parametrize(
    ("bench", "ack"),
    [("redis", "early"), ("redis", "late"), ("classic", "late"), ("quorum", "late")],
    indirect=["bench"],
)
def test_two_hundred_contended_tasks_run_once_each_and_spend_no_retry(
    bench: Bench, order: str, ack: str
) -> None:
    rig = bench.rig
    orders = [f"{order}-{number}" for number in range(RESOURCES)]
    for name in orders:
        rig.hold(name, 60)
    results = [bench.send(ack, name, "nap 0.01") for _ in range(EACH) for name in orders]
    wait_for(lambda: _put_back(bench) >= 2 * len(results), 2 * GIVE_UP)
    for name in orders:
        rig.release(name)
    assert {state(result) for result in results} == {"SUCCESS"}
    for name in orders:
        lines = rig.lines(name)
        assert [line["what"] for line in lines] == ["begin", "end"] * EACH
        assert [line["run"] for line in lines[::2]] == [line["run"] for line in lines[1::2]]
    begins = [line for name in orders for line in rig.lines(name, "begin")]
    assert {line["task_id"] for line in begins} == {result.id for result in results}
    assert {line["retries"] for line in begins} == {0}
    assert max(line["contentions"] for line in begins) >= LIMIT  # And one delivery more.


def _put_back(bench: Bench) -> int:
    return sum(worker.log().count("job.requeued") for worker in bench.workers)
