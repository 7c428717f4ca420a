"""Which brokers and pools are tried together, and what some of them cannot show."""

from __future__ import annotations

import os
from dataclasses import dataclass

KINDS = ("redis", "classic", "quorum", "sqs")
POOLS = ("prefork", "threads", "gevent", "solo")
ACKS = ("early", "late")

# The column of each scenario in the table that `make test-celery` prints.
COLUMNS = {
    "test_contended_tasks_run_one_after_the_other": "contended",
    "test_parked_tasks_take_turns": "in line",
    "test_a_copy_of_a_running_task_waits_for_its_end": "copy, running",
    "test_a_copy_of_a_finished_task_returns_its_result": "copy, finished",
    "test_a_lost_lease_interrupts_the_body": "lease lost",
    "test_a_killed_child_blocks_nobody": "child killed",
    "test_the_task_of_a_killed_worker_runs_again": "worker killed",
    "test_a_warm_shutdown_ends_the_task": "warm shutdown",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A broker and a pool.

    Attributes:
        kind: the broker, and for RabbitMQ the kind of its queues.
        pool: what the worker runs its tasks in.
    """

    kind: str
    pool: str

    def __str__(self) -> str:
        return f"{self.kind}-{self.pool}"

    @property
    def interrupts_calls(self) -> bool:
        """Whether a lost lease ends a blocking call; elsewhere it waits for the next bytecode."""
        return self.pool in ("prefork", "gevent")

    @property
    def workers(self) -> int:
        """How many workers there must be for two tasks to run at once."""
        return 2 if self.pool == "solo" else 1


ALL = [Cell(kind, pool) for kind in KINDS for pool in POOLS if kind != "sqs" or pool == "prefork"]
# Each broker once and each pool once; prefork on Redis is what all other tests run on.
SLICE = [
    Cell("redis", "threads"),
    Cell("classic", "gevent"),
    Cell("quorum", "solo"),
    Cell("sqs", "prefork"),
]
WHOLE = os.environ.get("MATRIX") == "all"
CELLS = ALL if WHOLE else SLICE

# What has to be known to read a row; why a scenario is not there at all is a skip's reason.
NOTES = {
    "solo": "two workers, since one runs only one task at a time",
    "redis gevent": "worker killed: with the transport option polling_interval=5; by default such "
    "a worker never restores what a dead one left (kombu without an event loop)",
}
NO_CHILDREN = "the pool has no child processes"
EARLY = "acked before it ran: it is gone with its worker"
