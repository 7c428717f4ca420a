"""Whether guards and Celery's settings fit, asked by every worker before it takes a task."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from celery.app.task import Task
from celery.bootsteps import StartStopStep
from celery.exceptions import WorkerShutdown

from giliran.adapters.celery.keeper import Keeper
from giliran.adapters.celery.visibility import of_channel, of_sqs
from giliran.checks import check
from giliran.findings import Finding, grouped
from giliran.guard import Guard
from giliran.limits import Limits, Words
from giliran.policies import Coalesce, HandOff

Checks: TypeAlias = Literal["refuse", "warn", "off"]

# Which limits a pool enforces: hard, soft. A pool that is not named here is taken at its word.
_ENFORCED = {
    "solo": (False, False),
    "thread": (False, False),
    "gevent": (True, False),
    "eventlet": (False, False),
}
_ACKED_ON_TIMEOUT = (  # Celery 5.7 told the two apart.
    "acks_on_timeout" if hasattr(Task, "acks_on_timeout") else "acks_on_failure_or_timeout"
)
_log = logging.getLogger("giliran")


@dataclass(frozen=True, slots=True)
class Setting:
    """What `CeleryQueue` was told about checks; `StartUpChecks` finds it on the application."""

    checks: Checks
    consumer_timeout: float | None


def install(app: Any, checks: Checks, consumer_timeout: float | None) -> None:
    """Let the workers of an application check its guarded tasks when they start.

    Args:
        app: the Celery application.
        checks: whether an error keeps a worker from starting, is logged, or is not looked for.
        consumer_timeout: what RabbitMQ's is said to be, in seconds; None: it has none.

    Raises:
        ValueError: if `checks` is none of the three words.
    """
    if checks not in ("refuse", "warn", "off"):
        raise ValueError(f'checks must be "refuse", "warn" or "off", not {checks!r}')
    app.giliran_checks = Setting(checks, consumer_timeout)
    app.steps["consumer"].add(StartUpChecks)


class StartUpChecks(StartStopStep):
    """Runs once per worker, when its queues are there and it has not asked for messages yet."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._done = False

    def start(self, parent: Any) -> None:
        """Tell what does not fit.

        Raises:
            WorkerShutdown: if something is wrong for certain; the exit code is that of a wrong
                configuration.
        """
        checks = parent.app.giliran_checks.checks
        if self._done or checks == "off":
            return
        self._done = True
        findings = list(find(parent))
        tell(findings)
        errors = {found.code for found in findings if found.severity == "error"}
        if errors and checks == "refuse":
            _log.error(
                "check.refused this worker does not start: %s. CeleryQueue(app, checks='warn') "
                "starts it all the same",
                ", ".join(sorted(errors)),
                extra={"event": "check.refused"},
            )
            raise WorkerShutdown(os.EX_CONFIG)


def tell(findings: Iterable[Finding]) -> None:
    """Log each finding once, with the names of its tasks."""
    for found, tasks in grouped(findings):
        event = f"check.{found.severity}"
        level = logging.ERROR if found.severity == "error" else logging.WARNING
        extra = {"event": event, "code": found.code, "tasks": tasks}
        _log.log(level, "%s %s (%s): %s", event, found.code, tasks, found.text, extra=extra)


def find(consumer: Any) -> Iterator[Finding]:
    """Check every guarded task of a connected worker's application."""
    worker = worker_limits(consumer)
    for task in consumer.app.tasks.values():
        for guard in guards_of(task):
            limits = task_limits(task, worker)
            if isinstance(guard.options.policy, HandOff | Coalesce):
                limits = replace(limits, appends=guard.runtime.appends())
            yield from check(guard, limits)


def guards_of(task: Any) -> Iterator[Guard]:
    """Answer the guards around a task's own function, outermost first."""
    run, last = task.run, None
    while run is not None:
        guard = getattr(run, "__giliran__", None)  # What wraps a guard may have it as well.
        if guard is not None and guard is not last:
            yield guard
        run, last = getattr(run, "__wrapped__", None), guard


def worker_limits(consumer: Any) -> Limits:
    """Collect what a connected worker and its broker say about any task."""
    controller, conf = consumer.controller, consumer.app.conf
    pool = type(consumer.pool).__module__.rpartition(".")[2]
    hard_enforced, soft_enforced = _ENFORCED.get(pool, (True, True))
    visibility, visibility_read = _visibility(consumer)
    ack_timeout, ack_timeout_read = _ack_timeout(consumer)
    kept = visibility is not None and Keeper in consumer.app.steps["consumer"]
    grows_to = getattr(controller, "max_concurrency", None) or 0
    return Limits(
        subject="",
        visibility=visibility,
        visibility_read=visibility_read,
        extended=kept,
        extended_waiting=kept,
        ack_timeout=ack_timeout,
        ack_timeout_read=ack_timeout_read,
        hard_limit=controller.time_limit or None,
        soft_limit=controller.soft_time_limit or None,
        hard_enforced=hard_enforced,
        soft_enforced=soft_enforced,
        # Without children the whole worker dies, and what it had not acked comes back.
        crash="fail" if pool == "prefork" else "redeliver",
        prefetch=1 if conf.get("worker_disable_prefetch") else consumer.prefetch_multiplier,
        concurrency=max(consumer.pool.num_processes, grows_to),
        words=_words(pool, consumer.connection.transport.driver_type),
    )


def task_limits(task: Any, worker: Limits) -> Limits:
    """Fit a worker's limits to one of its tasks."""
    again = task.reject_on_worker_lost or getattr(task, "retry_on_worker_lost", False)
    return replace(
        worker,
        subject=task.name,
        hard_limit=task.time_limit or worker.hard_limit,
        soft_limit=task.soft_time_limit or worker.soft_limit,
        late_ack=bool(task.acks_late),
        crash=("redeliver" if again else worker.crash) if task.acks_late else "lost",
        returned=bool(task.acks_late) and not getattr(task, _ACKED_ON_TIMEOUT),
        longest_delay=_longest_delay(task),
    )


def _words(pool: str, driver: str) -> Words:
    setting = "broker_transport_options['visibility_timeout']"
    return Words(
        visibility="the queue's VisibilityTimeout" if driver == "sqs" else setting,
        ack_timeout="RabbitMQ's consumer_timeout",
        cut_off=(
            "RabbitMQ then closes the channel, the worker shuts down, and all messages it held "
            "are delivered again"
        ),
        hard_limit="time_limit (task_time_limit)",
        soft_limit="soft_time_limit (task_soft_time_limit)",
        pool=f"the {pool} pool",
        prefetch="worker_prefetch_multiplier",
        early_ack="acks_late=False: a task is acknowledged before it runs",
        no_redelivery=(
            "acks_late=True with reject_on_worker_lost=False: a task whose process is killed is "
            "acknowledged as failed"
        ),
        redelivery="acks_late=True and reject_on_worker_lost=True",
        returned=f"{_ACKED_ON_TIMEOUT}=False",
    )


def _visibility(consumer: Any) -> tuple[float | None, bool]:
    """Answer the shortest visibility timeout of the worker's queues, and whether it was read."""
    channel = consumer.connection.default_channel
    if consumer.connection.transport.driver_type != "sqs":
        return of_channel(channel), True
    names = [str(name) for name in consumer.app.amqp.queues.consume_from]
    try:
        urls = [channel._resolve_queue_url(name) for name in names]  # noqa: SLF001  it creates none
        return min(map(of_sqs, [channel] * len(names), urls, names)), True
    except Exception:  # whatever SQS says, the worker may start
        return of_channel(channel), False


def _ack_timeout(consumer: Any) -> tuple[float | None, bool]:
    """Answer RabbitMQ's limit for unacknowledged messages, and whether it is known for certain."""
    if consumer.connection.transport.driver_type != "amqp":
        return None, True
    queues = consumer.app.amqp.queues.consume_from.values()
    told: list[Any] = [(queue.queue_arguments or {}).get("x-consumer-timeout") for queue in queues]
    if told and all(told):
        return min(told) / 1000, True
    return consumer.app.giliran_checks.consumer_timeout, False


def _longest_delay(task: Any) -> float | None:
    """Answer the longest delay that the task's retries are set to ask for."""
    automatic = bool(getattr(task, "autoretry_for", ()))
    options = getattr(task, "retry_kwargs", {}) if automatic else {}
    retries = options.get("max_retries", task.max_retries)
    factor = float(getattr(task, "retry_backoff", 0))
    if retries == 0 or not (automatic or task.default_retry_delay != Task.default_retry_delay):
        return None  # It does not retry, or nobody said how.
    if not (automatic and factor):
        return float(options.get("countdown", task.default_retry_delay))
    cap = float(getattr(task, "retry_backoff_max", 600))
    return cap if retries is None else min(cap, max(1, int(factor)) * 2.0 ** min(retries - 1, 30))
