"""A broker, a lock store and real Celery workers, as a test sees them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Generator
from pathlib import Path
from typing import Any

import redis
from celery.result import ResultSet
from tests.adapters.celery import tasks
from tests.support.wait import wait_for

from giliran.embedded import EmbeddedServer

ROOT = Path(__file__).parents[3]
WORKER = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=INFO")
GIVE_UP = 25.0


def connect(url: str, database: int) -> redis.Redis:
    """Connect to a database of a server."""
    return redis.Redis.from_url(url.replace("/0", f"/{database}"), decode_responses=True)


class Worker:
    """One worker process with its prefork children."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    def log(self) -> str:
        """Return what it logged so far."""
        return self._log.read_text()

    def end(self) -> None:
        """End it politely, then not: Celery itself sometimes hangs when a task has just failed."""
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(8)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(5)


class Rig:
    """What a test needs to send tasks to workers and to see what became of them."""

    def __init__(self, broker: EmbeddedServer, store: EmbeddedServer, folder: Path) -> None:
        self._broker, self._store, self._folder = broker, store, folder
        self.queue = connect(broker.url, 0)
        self.ledger = connect(broker.url, 2)
        self.store = connect(store.url, 0)
        self.ports = broker.port, store.port
        self.worker: Worker | None = None
        tasks.app.conf.update(broker_url=broker.url, result_backend=broker.url.replace("/0", "/1"))
        # Else results subscribe, and the garbage collector unsubscribes them whenever it likes:
        # with redis-py 5 also in the midst of subscribing, which deadlocks.
        tasks.app.backend.on_task_call = lambda *_: None

    @contextlib.contextmanager
    def run(
        self,
        queue: str,
        *,
        broker_url: str = "",
        store_url: str = "",
        pool: str = "prefork",
        children: int = 3,
        name: str = "",
        settings: dict[str, Any] | None = None,
        options: tuple[str, ...] = (),
    ) -> Generator[Worker]:
        """Run a worker on a queue in a block, with settings that JSON can tell, and options."""
        name = name or queue
        log = self._folder / f"{name}.log"
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
            "RIG_BROKER": broker_url or self._broker.url,
            "RIG_BACKEND": self._broker.url.replace("/0", "/1"),
            "RIG_LEDGER": self._broker.url.replace("/0", "/2"),
            "RIG_STORE": store_url or self._store.url,
            "RIG_SETTINGS": json.dumps(settings or {}),
        }
        command = [sys.executable, "-m", "celery", "-A", "tests.adapters.celery.tasks", "worker"]
        command += ["-P", pool, "-c", str(children), "-Q", queue, "-n", f"{name}@rig"]
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [*command, *WORKER, *options], cwd=ROOT, env=environment, stdout=sink, stderr=sink,
                start_new_session=True,
            )  # fmt: skip
        worker = Worker(process, log)
        try:
            wait_for(lambda: f"{name}@rig ready" in worker.log(), 20, "the worker is not ready")
            yield worker
        finally:
            worker.end()

    def database(self, number: int) -> str:
        """Return the URL of another database of the broker's server."""
        return self._broker.url.replace("/0", f"/{number}")

    def log(self) -> str:
        """Return what the shared worker logged."""
        return self.worker.log() if self.worker else ""

    def told(self, event: str, order: str) -> int:
        """Count the lines of the worker's log about one event of one order."""
        return sum(event in line and order in line for line in self.log().splitlines())

    # ------------------------------------------------------------------ the ledger

    def lines(self, order: str, what: str = "") -> list[dict[str, Any]]:
        """Return the lines of an order, all of them or those about one thing."""
        every = [json.loads(line) for line in self.ledger.lrange(f"ledger:{order}", 0, -1)]
        return [line for line in every if what in ("", line["what"])]

    def wait_lines(self, order: str, what: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until there are so many lines about one thing."""
        return wait_for(
            lambda: lines if len(lines := self.lines(order, what)) >= count else [],
            GIVE_UP,
            f"no {count} x {what!r}",
        )

    def open_gate(self, order: str) -> None:
        """Let one body that waits at the gate go on, now or later."""
        self.ledger.rpush(f"gate:{order}", "open")

    # ------------------------------------------------------------------ the lock

    def hold(self, order: str, seconds: float) -> None:
        """Hold an order's lock as another program would."""
        self.store.set(f"lock:{order}", "another program", px=int(seconds * 1000))

    def release(self, order: str) -> None:
        """End what `hold` began."""
        self.store.delete(f"lock:{order}")

    def held(self, order: str) -> bool:
        """Tell whether anybody holds the lock."""
        return bool(self.store.exists(f"lock:{order}"))

    # ------------------------------------------------------------------ messages

    def captured(self, task: Any, *args: object, **options: Any) -> dict[str, Any]:
        """Publish a task to a queue nobody serves and take the raw message from there."""
        limbo = f"limbo-{uuid.uuid4().hex}"
        task.apply_async(args, queue=limbo, **options)
        return self.caught(limbo)

    def caught(self, limbo: str) -> dict[str, Any]:
        """Take a raw message from a queue nobody serves, as if it had been sent to the worker."""
        raw: Any = self.queue.lpop(limbo)
        message: dict[str, Any] = json.loads(raw)
        message["properties"]["delivery_info"]["routing_key"] = "celery"
        return message

    def deliver(self, message: dict[str, Any]) -> None:
        """Put a raw message, or one more copy of it, into the worker's queue."""
        message["properties"]["delivery_tag"] = str(uuid.uuid4())
        self.queue.lpush("celery", json.dumps(message))


def outcome(result: Any) -> Any:
    """Wait for a task's end and return its value, or its error as a value."""
    wait_for(result.ready, GIVE_UP, f"{result!r} does not end")
    return result.join(propagate=False) if isinstance(result, ResultSet) else result.result


def state(result: Any) -> str:
    """Wait for a task's end and return its state."""
    outcome(result)
    return str(result.state)


def failure(result: Any) -> str:
    """Wait for a task's failure and return its message."""
    assert state(result) == "FAILURE", (result.state, result.result)
    return str(result.traceback).strip().splitlines()[-1].partition(": ")[2]
