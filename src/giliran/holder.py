"""Who holds a lease, as one line of text that `GET K` shows and that this module reads back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from urllib.parse import quote, unquote

_NAME_MAX = 128


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who asks: the parts of the lock's value that the asking process knows.

    Attributes:
        publication: what makes two deliveries "the same"; "" on a plain call.
        job_id: the framework's id, for people.
        job_type: the function's or task's name.
        route: the queue it came from.
        worker: `name=value` pairs that name the process.
    """

    publication: str = ""
    job_id: str = ""
    job_type: str = ""
    route: str = ""
    worker: str = ""

    def text(self, ttl_ms: str, max_hold_ms: str) -> str:
        """Write the `;name=value` tail of a lock value."""
        return (
            f";ttl={ttl_ms};max_hold={max_hold_ms};pub={field(self.publication)}"
            f";job={field(self.job_id)};type={field(self.job_type)};route={field(self.route)}"
            f";{self.worker or 'host='}"
        )

    def described(self) -> str:
        """Name this claimant for people, as `describe` names a holder."""
        return _described(self.job_type, self.job_id, _where(self.worker))


def field(text: str) -> str:
    """Escape one value to bounded, printable ASCII without separators; long ones stay distinct."""
    raw = text.encode("utf-8", "replace")
    if len(raw) > _NAME_MAX:
        digest = hashlib.sha256(raw).hexdigest()[:32]
        raw = raw[: _NAME_MAX - 33] + b"~" + digest.encode()
    return quote(raw, safe="/.:@-_~")


def parse(told: str) -> Mapping[str, str]:
    """Read the fields of a lock value (without its token); {} for a foreign one."""
    pairs = (part.partition("=") for part in told.split(";"))
    return {name: unquote(value) for name, separator, value in pairs if separator}


def describe(told: str) -> str:
    """Name a holder for people, from what a busy answer told; "" for a foreign one."""
    fields = parse(told)
    if not fields:
        return ""
    where = f"{fields.get('host', '')}:{fields.get('pid', '')}"
    return _described(fields.get("type", ""), fields.get("job", ""), where)


@cache
def _where(worker: str) -> str:
    fields = parse(worker)
    return f"{fields.get('host', '')}:{fields.get('pid', '')}"


def _described(job_type: str, job_id: str, where: str) -> str:
    job = " ".join(part for part in (job_type, job_id) if part)
    return f"{job} on {where}" if job else where
