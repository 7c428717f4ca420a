"""Celery 5.4 and later: `Giliran(url, queues=[CeleryQueue(app)])`, `exclusive` below `@app.task`.

A contended or interrupted task is published again with the same id, retry count, links and chord,
and this delivery ends by `Ignore`: nothing is stored, no retry is spent, and with late ack the
message is acked only after the broker has its copy.
"""

from __future__ import annotations

import hashlib
import signal
import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import cached_property
from typing import Any, ClassVar
from uuid import uuid4

from billiard.exceptions import SoftTimeLimitExceeded
from billiard.process import current_process
from celery.app.task import Task
from celery.exceptions import Ignore, Reject, Retry
from celery.signals import before_task_publish

from giliran.errors import LeaseInterrupt
from giliran.interrupt import Interrupter, for_this_thread
from giliran.jobs import Carried

PUBLICATION = "giliran_publication"
ELDER = "giliran_elder"
_CARRIED = {
    "contentions": "giliran_contentions",
    "contended_since_ms": "giliran_contended_since_ms",
    "recoveries": "giliran_recoveries",
    "outages": "giliran_outages",
}
_VISIBILITY = {"redis": 3600.0, "sqs": 1800.0}  # kombu's defaults, in seconds

_resubmitting: ContextVar[bool] = ContextVar("giliran_resubmitting", default=False)


class CeleryQueue:
    """Tells a guard which Celery task is running, and puts tasks back.

    Making one also stamps every message that this process publishes with a publication id. Where
    the publisher does not do so, the task's id, retry count and arguments stand in for it.

    Args:
        app: the Celery application.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        before_task_publish.connect(_stamp, weak=False, dispatch_uid="giliran.stamp")

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


class CeleryJob:
    """One delivery of one Celery task."""

    control: tuple[type[BaseException], ...] = (Ignore, Reject, Retry)
    limits: tuple[type[BaseException], ...] = (SoftTimeLimitExceeded,)

    def __init__(self, task: Any, request: Any, visibility: float | None) -> None:
        self._task, self._request = task, request
        headers = request.headers or {}
        self.visibility = visibility
        self.job_id = str(request.id)
        self.job_type = str(task.name)
        delivery = request.delivery_info or {}
        self.route = str(delivery.get("routing_key") or "")
        self.publication = str(headers.get(PUBLICATION) or self._unstamped())
        self.elder = str(headers.get(ELDER) or "")
        self.carried = Carried(
            **{name: int(headers.get(key) or 0) for name, key in _CARRIED.items()}
        )
        hard = (request.timelimit or (None, None))[0] or task.time_limit
        hard = hard or task.app.conf.task_time_limit
        self.time_limit = None if hard is None else float(hard)

    def _unstamped(self) -> str:
        request = self._request
        arguments = repr((request.args, request.kwargs)).encode("utf-8", "replace")
        digest = hashlib.sha256(arguments).hexdigest()[:16]
        main = self._task.app.main or ""
        return f"celery:{main}:{self.route}:{request.id}:{request.retries}:{digest}"

    def put_back(self, delay: float, carried: Carried) -> BaseException:
        """Publish the task again; this delivery then ends by `Ignore`."""
        request = self._request
        headers = {
            **(request.as_execution_options()["headers"] or {}),
            PUBLICATION: self.publication,
            **{key: getattr(carried, name) for name, key in _CARRIED.items()},
        }
        again = self._task.signature_from_request(
            request, countdown=delay, retries=request.retries, headers=headers
        )
        mark = _resubmitting.set(True)
        try:
            again.apply_async(add_to_parent=False)
        finally:
            _resubmitting.reset(mark)
        ended: BaseException = Ignore()
        return ended

    def stranded(self, error: Exception) -> BaseException:
        """Leave the message with the broker if it is not acked yet, else fail the task."""
        if not self._task.acks_late:
            return error
        rejected: BaseException = Reject(error, requeue=True)
        return rejected

    def interrupter(self) -> Interrupter:
        """A signal in a prefork child, since it ends a blocking call; else an exception."""
        child = current_process().name != "MainProcess"
        if child and threading.current_thread() is threading.main_thread():
            return SignalInterrupt()
        return for_this_thread()


class SignalInterrupt:
    """Raises `LeaseInterrupt` in the main thread by SIGUSR1, billiard's signal for soft limits.

    Unlike an exception left with the thread it ends a blocking system call at once. A signal that
    is not ours goes to the handler that was there before.
    """

    _before: ClassVar[Any] = None
    _pending: ClassVar[set[SignalInterrupt]] = set()
    _stray: ClassVar[int] = 0  # Sent, withdrawn, and not arrived yet.

    def __init__(self) -> None:
        here = signal.getsignal(signal.SIGUSR1)
        if here is not SignalInterrupt._handle:
            SignalInterrupt._before = here
            signal.signal(signal.SIGUSR1, SignalInterrupt._handle)

    @staticmethod
    def _handle(number: int, frame: Any) -> None:
        if SignalInterrupt._pending:
            SignalInterrupt._pending.clear()
            raise LeaseInterrupt
        if SignalInterrupt._stray:
            SignalInterrupt._stray -= 1
        elif callable(SignalInterrupt._before):
            SignalInterrupt._before(number, frame)

    def fire(self) -> None:
        """Send the signal to this process' main thread."""
        SignalInterrupt._pending.add(self)
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, signal.SIGUSR1)

    def withdraw(self) -> None:
        """Let a signal that has not arrived yet do nothing."""
        if self in SignalInterrupt._pending:
            SignalInterrupt._pending.discard(self)
            SignalInterrupt._stray += 1


def _runs(task: Any, function: Callable[..., object]) -> bool:
    """Tell whether a task's own function is this one, below whatever else wraps it."""
    run = task.run
    while run is not None:
        if getattr(run, "__func__", run) is function:
            return True
        run = getattr(run, "__wrapped__", None)
    return False


def _stamp(headers: dict[str, Any] | None = None, **_: object) -> None:
    """Give every publication an id of its own; only our own put-back keeps the one it has."""
    if headers is None or _resubmitting.get():
        return
    for key in _CARRIED.values():
        headers.pop(key, None)
    # Only the framework's own retry brings the headers of the message it is a retry of.
    headers[ELDER] = headers.get(PUBLICATION, "")
    headers[PUBLICATION] = uuid4().hex
