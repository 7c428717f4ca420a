"""What one queue says about one kind of job, for `checks` to compare with its guard."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Crash: TypeAlias = Literal["redeliver", "fail", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What a queue's people call its settings, so that a fix can be typed as it is read."""

    visibility: str = "the visibility timeout"
    ack_timeout: str = "the broker's limit for unacknowledged messages"
    cut_off: str = "the broker then cuts the worker off, and delivers all it held again"
    hard_limit: str = "the hard time limit"
    soft_limit: str = "the soft time limit"
    pool: str = "this kind of worker"
    prefetch: str = "the prefetch"
    early_ack: str = "the queue forgets a job when it hands it out"
    no_redelivery: str = "the queue takes a dead worker's job as failed"
    redelivery: str = "late acknowledgement, and redelivery of what a dead worker held"
    returned: str = "a job killed by its time limit is delivered again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one kind of job in one worker, in seconds.

    Attributes:
        subject: the job's name.
        visibility: when an unacknowledged message is delivered again; None: not by the clock.
        visibility_read: False if that number is assumed.
        extended: whether it is pushed out while a job runs.
        extended_waiting: the same for messages that wait in a worker, prefetched or delayed.
        ack_timeout: when the broker cuts off a worker that has not acknowledged; None: never.
        ack_timeout_read: False if that number is assumed.
        hard_limit: when the job is killed; None: never.
        soft_limit: when an error is raised in the job; None: never.
        hard_enforced: False if this kind of worker ignores the hard limit.
        soft_enforced: False if it ignores the soft one.
        late_ack: whether a message is acknowledged after the job, not before.
        crash: what becomes of a job whose process is killed.
        returned: whether a job killed by its hard limit is delivered again.
        longest_delay: the longest delay the framework's own retries may ask for; None: none.
        prefetch: messages that a worker reserves per slot; 0: as many as there are.
        concurrency: slots of this worker; None if unknown.
        appends: whether Redis keeps an append-only file; None if it does not say.
        words: what the settings are called.
    """

    subject: str
    visibility: float | None = None
    visibility_read: bool = True
    extended: bool = False
    extended_waiting: bool = False
    ack_timeout: float | None = None
    ack_timeout_read: bool = False
    hard_limit: float | None = None
    soft_limit: float | None = None
    hard_enforced: bool = True
    soft_enforced: bool = True
    late_ack: bool = True
    crash: Crash = "redeliver"
    returned: bool = False
    longest_delay: float | None = None
    prefetch: int = 1
    concurrency: int | None = None
    appends: bool | None = None
    words: Words = field(default_factory=Words)
