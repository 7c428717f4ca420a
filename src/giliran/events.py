"""What may happen, once: the source of logs, counters and docs.

A program says what happened by yielding `Emit(event)`; listeners log and count it. Field names
are those of the log contract: `job_id`, `resource_id`, `lock_key`, `lock_owner`, `lock_ttl`,
`result` and `reason` are always there. Tokens and arguments never are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40

# name -> (log level, when it happens)
CATALOGUE: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        "lock.acquired": (INFO, "the lease was granted; the body starts"),
        "lock.contended": (INFO, "another job holds the resource"),
        "lock.duplicate": (
            INFO,
            "a copy came while its original runs, or a retry while its elder ends",
        ),
        "lock.renew_failed": (WARNING, "one renewal got no answer; retried while trusted"),
        "lock.lost": (ERROR, "the lease ended while the body ran; the body is told"),
        "lock.released": (INFO, "the body is over and the lease was given back"),
        "lock.reclaimed": (WARNING, "its holder is proven dead; its lease was ended at once"),
        "lock.misused": (ERROR, "Redis cannot serve the claim until somebody changes something"),
        "store.unavailable": (WARNING, "Redis did not answer, or refused; nothing ran"),
        "record.unrecorded": (ERROR, "the effect happened, but Redis refused to write it down"),
        "record.not_kept": (WARNING, "the job is recorded as done, without its result"),
        "job.ran": (INFO, "outcome: the body returned and that was settled"),
        "job.failed": (INFO, "outcome: the body raised, or the policy's end is to fail"),
        "job.crashed": (WARNING, "outcome: a time limit, cancellation or exit ended the body"),
        "job.replayed": (INFO, "outcome: finished before; answered from the record"),
        "job.skipped": (INFO, "outcome: dropped by policy"),
        "job.requeued": (INFO, "put back for later; no attempt spent"),
        "job.parked": (INFO, "waits in line; costs nothing until it is called"),
        "job.called": (INFO, "a parked job was called, and published again if the broker took it"),
        "job.dead": (ERROR, "outcome: a parked job that could not be published; set aside"),
        "job.gave_up": (WARNING, "outcome: the budget for contention or recoveries is spent"),
        "job.refused": (
            ERROR,
            "outcome: the idempotency key was reused, or its effect is in doubt",
        ),
        "job.stranded": (ERROR, "could not be put back: the broker did not take it"),
    }
)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to one job and one resource.

    Attributes:
        name: a name of the catalogue.
        lock_key: the lock key as stored; of several resources, all of them with a space between.
        resource_id: the resource as the user named it, without scope; of several likewise.
        job_id: the framework's id; empty on a plain call.
        lock_owner: who holds the lock as far as this event knows, as text for people.
        lock_ttl: seconds the lock lives unless renewed.
        result: what came of it, one word.
        reason: why, one word or short text.
        fields: anything else.
    """

    name: str
    lock_key: str
    resource_id: str = ""
    job_id: str = ""
    lock_owner: str = ""
    lock_ttl: float = 0.0
    result: str = ""
    reason: str = ""
    fields: Mapping[str, object] = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        if self.name not in CATALOGUE:
            raise AssertionError(f"event {self.name!r} is not in the catalogue")

    @property
    def level(self) -> int:
        """The standard logging level."""
        return CATALOGUE[self.name][0]


Listener: TypeAlias = Callable[[Event], None]
