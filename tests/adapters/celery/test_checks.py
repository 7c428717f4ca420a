"""A worker whose durations do not fit says so before it takes a task, and may refuse to start."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from celery import Celery
from tests.adapters.celery import tasks
from tests.adapters.celery.rig import ROOT
from tests.conftest import MakeServer
from tests.support.rabbitmq import RabbitServer
from tests.support.sqs import SqsServer
from tests.support.wait import wait_for

from giliran.adapters.celery import CeleryQueue
from giliran.adapters.celery.checks import guards_of, task_limits
from giliran.embedded import EmbeddedServer
from giliran.limits import Limits

PATIENCE = 30.0
LATE = {"task_acks_late": True, "task_reject_on_worker_lost": True}
SHORT = {"broker_transport_options": {"visibility_timeout": 60}}
RETRIES = {"name": "retries", "task": {"autoretry_for": ["ValueError"], "default_retry_delay": 90}}
FORGETS = {"name": "forgets", "guard": {"idempotency_key": "{order}", "retain": 50}}


@dataclass
class Started:
    """A worker that came up, or did not."""

    process: subprocess.Popen[bytes]
    file: Path

    @property
    def log(self) -> str:
        return self.file.read_text()

    @property
    def told(self) -> list[str]:
        """What it said about its checks, without the time and the process."""
        return [line.partition("] ")[2] for line in self.log.splitlines() if "] check." in line]

    @property
    def codes(self) -> list[str]:
        return [line.split()[1] for line in self.told]

    def exit_code(self) -> int:
        return self.process.wait(PATIENCE)

    def wait_ready(self) -> None:
        wait_for(lambda: "checked@test ready" in self.log, PATIENCE, self.log)


class Start:
    """Starts workers of an application that is described by its arguments."""

    def __init__(self, broker: str, folder: Path) -> None:
        self.broker, self._folder = broker, folder
        self.store = "redis://127.0.0.1:1/0"
        self._workers: list[Started] = []

    def __call__(
        self, *each: dict[str, Any], pool: str, queue: dict[str, Any] | None = None, **conf: object
    ) -> Started:
        plan = {"tasks": each, "queue": queue or {}, "conf": {**LATE, **conf}}
        log = self._folder / f"worker-{len(self._workers)}.log"
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
            "CHECKED": json.dumps(plan),
            "CHECKED_BROKER": self.broker,
            "CHECKED_STORE": self.store,
        }
        command = [sys.executable, "-m", "celery", "-A", "tests.adapters.celery.checked", "worker"]
        command += ["-P", pool, "-c", "2", "-n", "checked@test", "--loglevel=INFO"]
        command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        with log.open("wb") as sink:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=sink, stderr=sink,
                start_new_session=True,
            )  # fmt: skip
        self._workers.append(Started(process, log))
        return self._workers[-1]

    def end(self) -> None:
        for worker in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.process.pid, signal.SIGKILL)
            worker.process.wait(PATIENCE)


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with EmbeddedServer() as running:
        yield running.url


@pytest.fixture
def start(broker: str, tmp_path: Path) -> Iterator[Start]:
    starting = Start(broker, tmp_path)
    yield starting
    starting.end()


@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_a_worker_with_a_promise_that_breaks_does_not_start(start: Start, pool: str) -> None:
    fine = {"name": "fine", "guard": {"max_hold": 40}}
    worker = start(FORGETS, fine, pool=pool, **SHORT)
    assert worker.exit_code() == os.EX_CONFIG
    assert "checked@test ready" not in worker.log
    error, refused = worker.told
    visibility = "broker_transport_options['visibility_timeout'] is 60 s"
    assert error.startswith(
        f"check.error retain-within-visibility (forgets): retain=50 s and {visibility}. Why: "
    )
    assert error.endswith("the effect happens twice. Fix: retain of at least 120 s.")
    assert refused.startswith("check.refused this worker does not start: retain-within-visibility.")


@pytest.mark.parametrize("pool", ["prefork", "solo", "threads", "gevent"])
def test_a_worker_whose_durations_fit_starts_without_a_word(start: Start, pool: str) -> None:
    worker = start({"name": "fine"}, RETRIES, pool=pool, **SHORT)  # The keeper extends 60 s.
    worker.wait_ready()
    assert worker.told == []


def test_who_parks_jobs_where_they_may_be_lost_does_not_start(start: Start) -> None:
    start.store = start.broker
    parks = {"name": "parks", "guard": {"hand_off": {}}}
    agreed = {"name": "agreed", "guard": {"hand_off": {"durable": False}}}
    worker = start(parks, agreed, pool="solo")
    assert worker.exit_code() == os.EX_CONFIG
    assert worker.codes == ["parked-not-durable", "this"]
    assert "(parks)" in worker.told[0]


@pytest.mark.parametrize("appends", [True, None], ids=["durable", "away"])
def test_who_parks_jobs_starts(start: Start, make_server: MakeServer, appends: bool | None) -> None:
    if appends:
        start.store = make_server("--appendonly", "yes").url
    worker = start({"name": "parks", "guard": {"hand_off": {}}}, pool="solo")
    worker.wait_ready()
    assert worker.told == []


def test_warn_starts_and_tells_alike_findings_once(start: Start) -> None:
    many = [{**RETRIES, "name": f"retries-{number:03}"} for number in range(200)]
    queue = {"checks": "warn", "keep_visible": False}
    limits = {"task_time_limit": 50, "worker_prefetch_multiplier": 1}
    worker = start(*many, pool="solo", queue=queue, **limits, **SHORT)
    worker.wait_ready()
    assert worker.codes == ["delay-beyond-visibility", "limits-ignored"]
    names = "(retries-000, retries-001, retries-002 and 197 more, 200 in all)"
    assert all(names in line for line in worker.told)
    assert "a delay of 90 s" in worker.told[0]
    assert "time_limit (task_time_limit) is 50 s, and the solo pool ignores that" in worker.told[1]


def test_off_does_not_look(start: Start) -> None:
    worker = start(FORGETS, pool="solo", queue={"checks": "off"}, **SHORT)
    worker.wait_ready()
    assert worker.told == []


def test_settings_of_application_and_worker_are_seen(start: Start) -> None:
    waits = {"name": "waits", "guard": {"wait": 5, "max_hold": 100}}
    early = {"name": "early", "task": {"acks_late": False}}
    worker = start(
        waits, early, pool="prefork", queue={"checks": "warn"}, task_soft_time_limit=90,
        task_time_limit=80, task_reject_on_worker_lost=False, task_acks_on_failure_or_timeout=False,
    )  # fmt: skip
    worker.wait_ready()
    assert worker.codes == [
        "soft-limit-beyond-hard-limit",
        "crash-fails-job",
        "crash-loses-job",
        "max-hold-beyond-hard-limit",
        "timeout-comes-back",
    ]


def test_what_rabbitmq_tells_nobody_is_assumed_and_refuses_nothing(
    start: Start, rabbit: RabbitServer
) -> None:
    start.broker = rabbit.url
    retries = {"name": "retries", "task": {"default_retry_delay": 7200}}
    worker = start(retries, pool="solo", queue={"consumer_timeout": 3600})
    worker.wait_ready()
    assert worker.codes == ["delay-beyond-ack-timeout", "max-hold-beyond-ack-timeout"]
    told = (
        "a retry may ask for a delay of 7200 s and RabbitMQ's consumer_timeout is 3600 s (assumed)"
    )
    assert told in worker.told[0]
    assert "the worker shuts down" in worker.told[0]
    assert "a job may run for 3600 s (the default max_hold) and" in worker.told[1]


def test_a_consumer_timeout_of_the_queue_itself_is_read(start: Start, rabbit: RabbitServer) -> None:
    start.broker = rabbit.url
    queue = {"exchange": "own", "queue_arguments": {"x-consumer-timeout": 900_000}}
    fine = {"name": "fine", "guard": {"max_hold": 899}}
    limits: dict[str, Any] = {"worker_prefetch_multiplier": 1, "task_default_queue": "own"}
    worker = start({"name": "long"}, fine, pool="solo", task_queues={"own": queue}, **limits)
    worker.wait_ready()
    (line,) = worker.told
    assert line.startswith("check.warning max-hold-beyond-ack-timeout (long): ")
    assert "RabbitMQ's consumer_timeout is 900 s. Why:" in line


def test_sqs_is_asked_for_the_timeout_of_its_queue(start: Start, sqs: SqsServer) -> None:
    client: Any = boto3.client("sqs", endpoint_url=f"http://127.0.0.1:{sqs.ports[0]}")
    client.create_queue(QueueName="celery", Attributes={"VisibilityTimeout": "70"})
    start.broker = sqs.url
    options = {"visibility_timeout": 10, "is_secure": False}
    forgets = {"name": "forgets", "guard": {"idempotency_key": "{order}", "retain": 69}}
    worker = start(forgets, pool="solo", broker_transport_options=options)
    assert worker.exit_code() == os.EX_CONFIG
    assert "retain=69 s and the queue's VisibilityTimeout is 70 s. Why:" in worker.told[0]


def test_a_word_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match='checks must be "refuse", "warn" or "off", not'):
        CeleryQueue(tasks.app, checks="maybe")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["late", "insists", "bound", "class_based", "refund"])
def test_guards_are_found_below_whatever_wraps_them(name: str) -> None:
    (guard,) = guards_of(getattr(tasks, name))
    assert guard.options.ttl == tasks.TTL


def test_tasks_without_a_guard_have_none() -> None:
    assert list(guards_of(tasks.note)) == []


@pytest.mark.parametrize(
    ("options", "delay"),
    [
        ({}, None),
        ({"default_retry_delay": 90}, 90),
        ({"default_retry_delay": 90, "max_retries": 0}, None),
        ({"autoretry_for": (ValueError,)}, 180),
        ({"autoretry_for": (ValueError,), "retry_kwargs": {"countdown": 7}}, 7),
        ({"autoretry_for": (ValueError,), "retry_kwargs": {"max_retries": 0}}, None),
        ({"autoretry_for": (ValueError,), "retry_backoff": True}, 4),
        ({"autoretry_for": (ValueError,), "retry_backoff": 5, "max_retries": 4}, 40),
        ({"autoretry_for": (ValueError,), "retry_backoff": 5, "max_retries": 9}, 600),
        ({"autoretry_for": (ValueError,), "retry_backoff": True, "max_retries": None}, 600),
        (
            {"autoretry_for": (ValueError,), "retry_backoff": 9, "retry_backoff_max": 10},
            10,
        ),
    ],
)
def test_the_longest_delay_is_what_retries_may_ask_for(
    options: dict[str, Any], delay: float | None
) -> None:
    app: Any = Celery("delayed", set_as_current=False)

    @app.task(name="delayed", shared=False, **options)
    def delayed() -> None: ...

    assert task_limits(app.tasks["delayed"], Limits(subject="")).longest_delay == delay
