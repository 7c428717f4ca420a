"""The Celery application as a queue: which task runs here, and how long until it comes again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.app.task import Task
from celery.signals import before_task_publish, task_received, worker_init

from giliran.adapters.celery import ending, shelf
from giliran.adapters.celery.checks import Checks, install
from giliran.adapters.celery.headers import stamp
from giliran.adapters.celery.job import CeleryJob
from giliran.adapters.celery.keeper import Keeper
from giliran.adapters.celery.message import keep_content_type
from giliran.adapters.celery.publish import Publisher
from giliran.adapters.celery.sweeps import Sweeps
from giliran.adapters.celery.visibility import Visibility
from giliran.timeouts import Seconds, seconds

CONSUMER_TIMEOUT = 1800.0  # RabbitMQ's default, in seconds


class CeleryQueue:
    """Tells a guard which Celery task is running, and puts tasks back.

    Making one also stamps every message that this process publishes with a publication id. Where
    the publisher does not do so, the task's id, retry count and arguments stand in for it.

    Args:
        app: the Celery application.
        consumer_timeout: what `consumer_timeout` is on your RabbitMQ, which tells it to nobody, in
            seconds or as a timedelta; None if it is switched off. Other brokers are asked.
        keep_visible: let this application's workers on Redis and SQS extend the visibility timeout
            of every message they hold, so that long tasks, countdowns and prefetched messages are
            not delivered again while their worker lives.
        checks: whether a starting worker compares the durations of its guards with Celery's
            settings. "refuse" logs what does not fit and does not start if a promise breaks for
            certain, "warn" starts all the same, "off" does not look.

    Raises:
        ValueError: if `consumer_timeout` is not above 0, or `checks` is none of its words.
    """

    def __init__(
        self,
        app: Any,
        *,
        consumer_timeout: Seconds | None = CONSUMER_TIMEOUT,
        keep_visible: bool = True,
        checks: Checks = "refuse",
    ) -> None:
        if consumer_timeout is not None:
            consumer_timeout = seconds(consumer_timeout, "consumer_timeout")
            if consumer_timeout == 0:
                raise ValueError("consumer_timeout must be above 0 s; None means there is none")
        self._app = app
        self._visibility = Visibility(app, consumer_timeout)
        self._publisher = Publisher(app)
        before_task_publish.connect(stamp, weak=False, dispatch_uid="giliran.stamp")
        ending.install()
        task_received.connect(keep_content_type, weak=False, dispatch_uid="giliran.content_type")
        worker_init.connect(_tell_limit, weak=False, dispatch_uid="giliran.limit")
        if keep_visible:
            app.steps["consumer"].add(Keeper)
        app.steps["consumer"].add(Sweeps)
        install(app, checks, consumer_timeout)

    def current(self, function: Callable[..., object]) -> CeleryJob | None:
        """Answer the task whose own function is being called; None for eager and plain calls."""
        task = self._app.current_task
        if task is None or not _runs(task, function):
            return None
        request = task.request
        if request.called_directly or request.is_eager or not request.id:
            return None
        if getattr(request, "giliran_entered", False):
            return None  # The task's body calls its own function: that call is no job.
        request.giliran_entered = True
        return CeleryJob(task, request, self._visibility.of(request), self._publisher)

    @property
    def route(self) -> str:
        """Name the application and its broker: each of its processes can publish its tasks."""
        return shelf.route(self._app)

    def publish(self, payload: str, rank: int, verdict: str) -> None:
        """Publish a parked task again."""
        shelf.republish(self._app, self._publisher, payload, rank, verdict)

    def is_context(self, value: object) -> bool:
        """Tell whether a value is a task, as `bind=True` passes it."""
        return isinstance(value, Task)


def _tell_limit(sender: Any = None, **_: object) -> None:
    """Let jobs see what `celery worker --time-limit` says, which only the pool is told."""
    if sender is not None and sender.time_limit:
        sender.app.conf.task_time_limit = float(sender.time_limit)


def _runs(task: Any, function: Callable[..., object]) -> bool:
    """Tell whether a task's own function is this one, below whatever else wraps it."""
    run = task.run
    while run is not None:
        if getattr(run, "__func__", run) is function:
            return True
        run = getattr(run, "__wrapped__", None)
    return False
