"""What a run must not leave on the server."""

from __future__ import annotations

from typing import Any

import redis

from chaos.history import Recorder

QUEUES_OWN = ("chaos:queue:", "_kombu.", "unacked", "celery")


def audit(port: int, recorder: Recorder) -> None:
    """Write down keys that never expire and locks that nobody can hold any more.

    To be called when no worker has run for longer than a TTL.
    """
    with redis.Redis(port=port, decode_responses=True) as client:
        connection: Any = client
        for key in sorted(connection.scan_iter(count=1000)):
            if key.startswith(QUEUES_OWN):
                continue
            if connection.pttl(key) == -1:
                recorder.log("immortal", key=key)
            if key.startswith("lock:"):
                holder = connection.get(key) or ""
                recorder.log("orphan", key=f"{key}: {holder.partition(';')[2]}")
