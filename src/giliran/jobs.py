"""What a guard needs to know of a queue: five questions, answered by an adapter.

Which job is this, how is it put back, how does it end, how long until the queue redelivers it,
and how is it interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from giliran.line import Shelved

if TYPE_CHECKING:
    from giliran.interrupt import Interrupter


@dataclass(frozen=True, slots=True)
class Carried:
    """What a job carries along in its message when it is put back.

    Attributes:
        contentions: how often it was put back because the resource was busy.
        contended_since_ms: server time of the first contention; 0 if none yet.
        recoveries: how often it was put back because its lease was lost.
        outages: how often it was put back because Redis did not answer.
        rank: its place in the line of the resource, once it had one; 0 if not.
        verdict: how a parked job is to end: "gave_up" or "superseded"; "" to run.
    """

    contentions: int = 0
    contended_since_ms: int = 0
    recoveries: int = 0
    outages: int = 0
    rank: int = 0
    verdict: str = ""


class Job(Protocol):
    """One delivery of one message, as its adapter sees it."""

    @property
    def publication(self) -> str:
        """What makes two deliveries "the same": kept by redelivery and by `put_back`."""
        ...

    @property
    def elder(self) -> str:
        """The publication that this one is the framework's retry of; "" if it is none."""
        ...

    @property
    def job_id(self) -> str:
        """The framework's id; frameworks reuse it, so it is for people only."""
        ...

    @property
    def job_type(self) -> str:
        """The name of the task."""
        ...

    @property
    def route(self) -> str:
        """The queue it came from."""
        ...

    @property
    def carried(self) -> Carried:
        """What this message carries of its earlier deliveries."""
        ...

    @property
    def visibility(self) -> float | None:
        """Seconds after which the queue redelivers a message it got no ack for; None: never."""
        ...

    @property
    def time_limit(self) -> float | None:
        """Seconds after which the framework kills the job; None: never."""
        ...

    @property
    def control(self) -> tuple[type[BaseException], ...]:
        """The framework's own control flow: neither success nor failure."""
        ...

    @property
    def limits(self) -> tuple[type[BaseException], ...]:
        """What the framework raises into a job that runs too long: counts as a crash."""
        ...

    def put_back(self, delay: float, carried: Carried) -> BaseException:
        """Publish the job again, due in `delay` seconds, without spending an attempt.

        Returns once the broker has it, with what to raise so that this delivery ends quietly.

        Raises:
            Exception: if the broker did not take it; this delivery must then not be acked as done.
        """
        ...

    def shelve(self, carried: Carried) -> Shelved | None:
        """Write down what `Queue.publish` needs to publish the job again; None if it cannot be."""
        ...

    def parked(self) -> BaseException:
        """Answer what to raise so that this delivery ends quietly: the job is parked."""
        ...

    def stranded(self, error: Exception) -> BaseException:
        """Answer what to raise when `put_back` failed, so that the job is not lost."""
        ...

    def interrupter(self) -> Interrupter:
        """Make what interrupts this job's body; called where the body runs."""
        ...


class Queue(Protocol):
    """One queue that jobs come from."""

    @property
    def route(self) -> str:
        """Names who can publish jobs parked from this queue; every process says it alike."""
        ...

    def publish(self, payload: str, rank: int, verdict: str) -> None:
        """Publish a parked job again, with its place in line and how it is to end.

        Returns once the broker has it.

        Raises:
            OSError: if the broker could not be reached; the job is called again until it is.
            Exception: if this payload cannot be published; after a few times it is set aside.
        """
        ...

    def current(self, function: Callable[..., object]) -> Job | None:
        """Answer the job that is running `function` here and now, if there is one.

        A guarded function called *by* a job is no job itself: putting the job back would run
        all of it again.
        """
        ...

    def is_context(self, value: object) -> bool:
        """Tell whether an argument is the framework's own object, which never enters keys."""
        ...
