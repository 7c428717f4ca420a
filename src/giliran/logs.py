"""Writes events to the standard logger `giliran`, with the fixed field names as extras."""

from __future__ import annotations

import logging

from giliran.events import Event

_log = logging.getLogger("giliran")


def log(event: Event) -> None:
    """Write one event: readable as text, complete as extras. Tokens and arguments never appear."""
    if not _log.isEnabledFor(event.level):
        return
    told = {
        "job_id": event.job_id,
        "resource_id": event.resource_id,
        "lock_key": event.lock_key,
        "lock_owner": event.lock_owner,
        "lock_ttl": event.lock_ttl,
        "result": event.result,
        "reason": event.reason,
        **event.fields,
    }
    shown = " ".join(f"{name}={value}" for name, value in told.items() if value not in ("", 0.0))
    _log.log(event.level, "%s %s", event.name, shown, extra={"event": event.name, **told})
