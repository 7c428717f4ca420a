"""How the queue is attached to giliran: which job runs here, how it is put back and parked."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from chaos.judgement import POISON
from chaos.queue import ALIVE, Message, RedisQueue, Unanswered, fresh_id, insist
from giliran.interrupt import Interrupter, for_this_thread
from giliran.jobs import Carried
from giliran.line import Shelved

ROUTE = "chaos"

_running: ContextVar[QueuedJob | None] = ContextVar("chaos_running", default=None)


class WasPutBack(Exception):
    """The job will come again: this delivery ends without an outcome, and is acked."""


class WasParked(Exception):
    """The job lies on its shelf: this delivery ends without an outcome, and is acked."""


class Stranded(Exception):
    """The job could not be put back: this delivery must not be acked."""


class ChaosQueue:
    """Tells a guard which message is being worked on in this thread, and publishes parked ones."""

    route = ROUTE

    def __init__(self, queue: RedisQueue) -> None:
        self._queue = queue

    @contextmanager
    def running(self, message: Message) -> Generator[None, None, None]:
        """Work on a message in a block."""
        mark = _running.set(QueuedJob(self._queue, message))
        try:
            yield
        finally:
            _running.reset(mark)

    def current(self, function: Callable[..., object]) -> QueuedJob | None:
        """Answer the job that is running `function`, once: what it calls in turn is no job."""
        job = _running.get()
        if job is None or job.job_type != getattr(function, "__name__", ""):
            return None
        _running.set(None)
        return job

    def publish(self, payload: str, rank: int, verdict: str) -> None:
        """Publish a parked job under an id of its own."""
        message = Message.loads(payload)
        if str(message.args.get("effect")).startswith(POISON):
            raise ValueError(f"job {message.job} cannot be published, on purpose")
        carried = replace(message.carried, rank=rank, verdict=verdict)
        copy = replace(message, id=fresh_id(), carried=carried)
        try:
            insist(lambda: self._queue.enqueue(copy), tries=3)
        except Unanswered as error:
            raise ConnectionError(str(error)) from error

    def is_context(self, value: object) -> bool:
        """No argument is ever this queue's own."""
        del value
        return False


class QueuedJob:
    """One delivery of one message."""

    visibility: float | None = ALIVE
    time_limit: float | None = None
    route = ROUTE
    elder = ""  # This queue has no retries of its own.
    control: tuple[type[BaseException], ...] = (WasPutBack, WasParked, Stranded)
    limits: tuple[type[BaseException], ...] = ()

    def __init__(self, queue: RedisQueue, message: Message) -> None:
        self._queue, self._message = queue, message
        self.publication = message.publication
        self.job_id = message.job
        self.job_type = message.task
        self.carried = message.carried

    def put_back(self, delay: float, carried: Carried) -> BaseException:
        """Publish a copy under an id of its own; only then may this delivery be acked."""
        copy = replace(self._message, id=fresh_id(), carried=carried)
        insist(lambda: self._queue.enqueue(copy, delay), tries=3)
        return WasPutBack()

    def shelve(self, carried: Carried) -> Shelved:
        """Write the message down."""
        return Shelved(ROUTE, replace(self._message, carried=carried).dumps())

    def parked(self) -> BaseException:
        """End this delivery: the shelf has the message."""
        return WasParked()

    def stranded(self, error: Exception) -> BaseException:
        """Leave the message where it is: it lies in the in-flight list, and is found there."""
        stranded = Stranded()
        stranded.__cause__ = error
        return stranded

    def interrupter(self) -> Interrupter:
        """An exception: this worker runs its jobs in its main thread, by plain calls."""
        return for_this_thread()
