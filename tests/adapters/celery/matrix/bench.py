"""Workers of one cell of the matrix, on a queue of their own, and how tasks get there."""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from dataclasses import dataclass, field
from typing import Any, Self

from kombu import Exchange, Queue  # type: ignore[attr-defined]
from kombu.connection import Connection
from tests.adapters.celery import tasks
from tests.adapters.celery.matrix.cells import Cell
from tests.adapters.celery.rig import GIVE_UP, Rig, Worker
from tests.support.wait import wait_for


@dataclass(frozen=True, slots=True)
class Broker:
    """Where a worker's messages come from.

    Attributes:
        url: its address.
        queue_arguments: what its queues are declared with.
        transport_options: what kombu is told.
    """

    url: str
    queue_arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    transport_options: dict[str, Any] = field(default_factory=dict[str, Any])


class Bench:
    """Workers of one cell and a connection to their broker, while the block lasts."""

    def __init__(self, rig: Rig, broker: Broker, cell: Cell) -> None:
        self.rig, self.cell = rig, cell
        self.name = f"{cell}-{uuid.uuid4().hex[:8]}"
        self.workers: list[Worker] = []
        self._broker = broker
        self._ends = contextlib.ExitStack()
        self._connection: Any = Connection(  # type: ignore[no-untyped-call]
            broker.url, transport_options=broker.transport_options
        )

    def __enter__(self) -> Self:
        self._ends.enter_context(self._connection)
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            kill(worker)
        self._ends.close()

    def start(self) -> Worker:
        """Start one more worker."""
        queue = {
            "exchange": self.name,
            "exchange_type": "direct",
            "routing_key": self.name,
            "queue_arguments": self._broker.queue_arguments,
        }
        settings: dict[str, Any] = {
            "task_queues": {self.name: queue},
            "worker_prefetch_multiplier": 1,
        }
        if self._broker.transport_options:
            settings["broker_transport_options"] = self._broker.transport_options
        worker = self._ends.enter_context(
            self.rig.run(
                self.name,
                broker_url=self._broker.url,
                pool=self.cell.pool,
                children=1 if self.cell.pool == "solo" else 3,
                name=f"{self.name}-{len(self.workers)}",
                settings=settings,
            )
        )
        self.workers.append(worker)
        return worker

    def told(self, event: str, order: str) -> int:
        """Count how often a worker logged an event of an order."""
        lines = [line for worker in self.workers for line in worker.log().splitlines()]
        return sum(event in line and order in line for line in lines)

    # ------------------------------------------------------------------ messages

    def send(self, task: str, *args: object) -> Any:
        """Publish a task."""
        return self._send(self.name, task, args)

    def message(self, task: str, order: str, plan: str) -> Any:
        """Make a message of a task that tells of its end; it is published, but nobody gets it."""
        link = tasks.note.si(order, "linked").set(queue=self.name)
        limbo = self._queue(f"limbo-{uuid.uuid4().hex[:8]}")
        self._send(limbo.name, task, (order, plan), link=link)
        bound = limbo.bind(self._connection.default_channel)
        return wait_for(lambda: bound.get(no_ack=True), GIVE_UP, "the message is lost")

    def deliver(self, message: Any) -> None:
        """Publish a message as it is."""
        queue = self._queue(self.name)
        with self._connection.Producer() as producer:
            producer.publish(
                message.body,
                content_type=message.content_type,
                content_encoding=message.content_encoding,
                headers=message.headers,
                correlation_id=message.properties["correlation_id"],
                exchange=queue.exchange,
                routing_key=queue.routing_key,
                declare=[queue],
            )

    def _send(self, queue: str, task: str, args: tuple[object, ...], **options: Any) -> Any:
        published: Any = getattr(tasks, task)
        return published.apply_async(
            args, queue=self._queue(queue), connection=self._connection, **options
        )

    def _queue(self, name: str) -> Any:
        exchange: Any = Exchange(name)  # type: ignore[no-untyped-call]
        return Queue(  # type: ignore[no-untyped-call]
            name, exchange, routing_key=name, queue_arguments=self._broker.queue_arguments
        )


def kill(worker: Worker) -> None:
    """Kill a worker and its children with SIGKILL, if it still runs."""
    if worker.process.poll() is None:
        os.killpg(worker.process.pid, signal.SIGKILL)
        worker.process.wait(5)
