"""A message that a living worker holds is not delivered again, however long it is held.

Each scenario is told to two worlds: workers that keep their messages invisible, and workers that
do not, which shows that the broker would have delivered it again. All of it goes on at once.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
import redis
from kombu.connection import Connection
from tests.adapters.celery import tasks
from tests.adapters.celery.matrix.bench import kill
from tests.adapters.celery.rig import GIVE_UP, Rig, Worker, outcome
from tests.support.sqs import SqsServer
from tests.support.wait import wait_for

VISIBILITY = 3
LONG = 3 * VISIBILITY
PREFETCHED = 3
POOLS = {"redis": ("prefork", "threads", "gevent", "solo"), "sqs": ("prefork",)}
SHARED = ("countdown", "guarded")  # Queues that all workers serve that can do several things.
PROMPT = {"unacked_restore_interval": 0.3, "unacked_restore_throttle": 1}


@dataclass
class World:
    """Workers on one broker, all of which keep their messages invisible, or none of them."""

    rig: Rig
    broker: str
    keeps: bool
    url: str
    options: dict[str, Any]
    left: Callable[[str], int]
    orders: dict[str, str] = field(default_factory=dict[str, str])
    results: dict[str, Any] = field(default_factory=dict[str, Any])
    workers: list[Worker] = field(default_factory=list[Worker])

    def queue(self, name: str) -> str:
        """Name a queue of this world."""
        return f"{self.broker}-{'kept' if self.keeps else 'unkept'}-{name}"

    def run(self, pool: str) -> contextlib.AbstractContextManager[Worker]:
        """Run a worker on a queue of its own and, if several tasks fit it, on the shared ones."""
        single = self.broker == "redis" and pool in {"prefork", "solo"}
        queues = [pool] if single else [pool, *SHARED]
        return self.rig.run(
            ",".join(map(self.queue, queues)),
            broker_url=self.url,
            pool=pool,
            children=1 if single else 4 if pool == "prefork" else 50,
            name=self.queue(pool),
            settings={
                "broker_transport_options": self.options,
                "keep_visible": self.keeps,
                "task_acks_late": True,
                "worker_enable_remote_control": False,
                "worker_prefetch_multiplier": 2 * (1 + PREFETCHED),  # Room for copies.
            },
        )

    def tell(self) -> None:
        """Send what the tests ask about."""
        options: Any = {"transport_options": self.options}
        with Connection(self.url, **options) as connection:  # type: ignore[no-untyped-call]
            for pool in POOLS[self.broker]:
                self.send(connection, pool, f"long {pool}", tasks.outer, "gate 60")
            self.send(connection, "countdown", "countdown", tasks.outer, "", countdown=LONG)
            self.send(connection, "guarded", "guarded", tasks.late, "gate 60")
            self.rig.wait_lines(self.orders["long prefork"], "begin")
            for number in range(PREFETCHED):
                self.send(connection, "prefork", f"prefetched {number}", tasks.outer, "")

    def send(
        self, connection: Any, queue: str, what: str, task: Any, plan: str, **when: float
    ) -> None:
        """Send a task about an order of its own."""
        self.orders[what] = f"order-{uuid.uuid4().hex[:12]}"
        self.results[what] = task.apply_async(
            (self.orders[what], plan), queue=self.queue(queue), connection=connection, **when
        )

    def deliveries(self, queue: str, what: str) -> int:
        """Count how often a worker began it: all, or where they are not kept the first two."""
        if self.keeps:
            wait_for(lambda: self.left(self.queue(queue)) == 0, GIVE_UP, f"{queue}: not empty")
            return len(self.rig.lines(self.orders[what], "begin"))
        return len(self.rig.wait_lines(self.orders[what], "begin", 2)[:2])

    def end(self) -> None:
        """Let the long bodies, and all copies of them, end after three visibility timeouts."""
        gated = [self.orders[what] for what in self.orders if what.startswith(("long", "guarded"))]
        begun = max(self.rig.wait_lines(order, "begin")[0]["at"] for order in gated)
        wait_for(lambda: time.monotonic() - begun > LONG, LONG + 1)
        for order in gated:
            for _ in range(50):
                self.rig.open_gate(order)

    def told(self, event: str, what: str) -> int:
        """Count the lines of the workers' logs about one event."""
        lines = [line for worker in self.workers for line in worker.log().splitlines()]
        return sum(event in line and self.orders[what] in line for line in lines)


def redis_world(rig: Rig, number: int, *, keeps: bool) -> World:
    """Make a world in a database of its own, in which copies are made promptly."""
    url = rig.database(number)

    def left(queue: str) -> int:
        with redis.Redis.from_url(url) as client:
            unacked: Any = client.hvals("unacked")
            waiting: Any = client.llen(queue)
        mine = [message for message in unacked if json.loads(message)[2] == queue]
        return int(waiting) + len(mine)

    return World(rig, "redis", keeps, url, {"visibility_timeout": VISIBILITY, **PROMPT}, left)


def sqs_world(rig: Rig, sqs: SqsServer, *, keeps: bool) -> World:
    """Make a world on SQS, where kombu makes queues with the visibility timeout of its options."""
    options = {"is_secure": False, "visibility_timeout": VISIBILITY, "wait_time_seconds": 1}
    counts = [
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
    ]
    client: Any = boto3.client("sqs", endpoint_url=f"http://127.0.0.1:{sqs.ports[0]}")

    def left(queue: str) -> int:
        url = client.get_queue_url(QueueName=queue)["QueueUrl"]
        answer = client.get_queue_attributes(QueueUrl=url, AttributeNames=counts)
        return sum(int(answer["Attributes"][name]) for name in counts)

    return World(rig, "sqs", keeps, sqs.url, options, left)


@pytest.fixture(scope="module")
def worlds(servers: Rig, sqs: SqsServer) -> Iterator[dict[tuple[str, bool], World]]:
    """Four worlds in which all of it goes on."""
    made = [
        redis_world(servers, 5, keeps=True),
        redis_world(servers, 6, keeps=False),
        sqs_world(servers, sqs, keeps=True),
        sqs_world(servers, sqs, keeps=False),
    ]
    runs = [(world, world.run(pool)) for world in made for pool in POOLS[world.broker]]
    with contextlib.ExitStack() as ends, ThreadPoolExecutor(4) as some:
        begun = list(some.map(lambda run: (run[0], ends.enter_context(run[1])), runs))
        for world, worker in begun:
            world.workers.append(worker)
            ends.callback(kill, worker)
        for world in made:
            world.tell()
        for world in made:
            world.end()
        yield {(world.broker, world.keeps): world for world in made}


@pytest.fixture(params=[True, False], ids=["kept", "unkept"])
def keeps(request: pytest.FixtureRequest) -> bool:
    """Whether the workers keep their messages invisible."""
    return bool(request.param)


@pytest.mark.parametrize(
    ("broker", "pool"), [(broker, pool) for broker, pools in POOLS.items() for pool in pools]
)
def test_a_task_longer_than_the_visibility_timeout_is_delivered_once(
    worlds: dict[tuple[str, bool], World], broker: str, pool: str, keeps: bool
) -> None:
    world = worlds[broker, keeps]
    assert world.deliveries(pool, f"long {pool}") == (1 if keeps else 2)


@pytest.mark.parametrize("broker", POOLS)
def test_a_countdown_longer_than_the_visibility_timeout_is_delivered_once(
    worlds: dict[tuple[str, bool], World], broker: str, keeps: bool
) -> None:
    world = worlds[broker, keeps]
    world.rig.wait_lines(world.orders["countdown"], "end")
    assert world.deliveries("countdown", "countdown") == (1 if keeps else 2)


def test_messages_prefetched_behind_a_long_task_are_delivered_once(
    worlds: dict[tuple[str, bool], World], keeps: bool
) -> None:
    world = worlds["redis", keeps]
    counts = [world.deliveries("prefork", f"prefetched {n}") for n in range(PREFETCHED)]
    assert counts == [1 if keeps else 2] * PREFETCHED


@pytest.mark.parametrize("broker", POOLS)
def test_a_copy_of_a_guarded_task_that_runs_is_put_back_and_answered_from_its_record(
    worlds: dict[tuple[str, bool], World], broker: str, keeps: bool
) -> None:
    world = worlds[broker, keeps]
    assert outcome(world.results["guarded"]) == {"order": world.orders["guarded"], "run": 1}
    if keeps:
        wait_for(lambda: world.left(world.queue("guarded")) == 0, GIVE_UP, "there are copies")
        assert not world.told("lock.duplicate", "guarded")
    else:
        wait_for(lambda: world.told("job.replayed", "guarded"), GIVE_UP, "no copy was answered")
        assert world.told("lock.duplicate", "guarded")
    assert len(world.rig.lines(world.orders["guarded"], "begin")) == 1
    assert world.told("job.ran", "guarded") == 1
