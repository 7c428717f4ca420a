"""The Celery application as a queue: which task runs here, and how long until it comes again."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from celery.app.task import Task
from celery.signals import before_task_publish

from giliran.adapters.celery.headers import stamp
from giliran.adapters.celery.job import CeleryJob

_VISIBILITY = {"redis": 3600.0, "sqs": 1800.0}  # kombu's defaults, in seconds


class CeleryQueue:
    """Tells a guard which Celery task is running, and puts tasks back.

    Making one also stamps every message that this process publishes with a publication id. Where
    the publisher does not do so, the task's id, retry count and arguments stand in for it.

    Args:
        app: the Celery application.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        before_task_publish.connect(stamp, weak=False, dispatch_uid="giliran.stamp")

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
        return CeleryJob(task, request, self._visibility)

    def is_context(self, value: object) -> bool:
        """Tell whether a value is a task, as `bind=True` passes it."""
        return isinstance(value, Task)

    @cached_property
    def _visibility(self) -> float | None:
        with self._app.connection_for_read() as connection:
            driver = connection.transport.driver_type
            options = connection.transport_options or {}
        known = options.get("visibility_timeout", _VISIBILITY.get(driver))
        return None if known is None else float(known)


def _runs(task: Any, function: Callable[..., object]) -> bool:
    """Tell whether a task's own function is this one, below whatever else wraps it."""
    run = task.run
    while run is not None:
        if getattr(run, "__func__", run) is function:
            return True
        run = getattr(run, "__wrapped__", None)
    return False
