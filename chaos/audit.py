"""What a run must not leave on the server."""

from __future__ import annotations

from typing import Any

import redis

from chaos.history import Recorder

QUEUES_OWN = ("chaos:queue:", "_kombu.", "unacked", "celery")
INDEX = "{giliran}:"  # Of lines: forgets one only a minute after somebody last parked there.
OF_A_LINE = (":line", ":parked", ":due")


def audit(port: int, recorder: Recorder) -> None:
    """Write down what is left of lines, keys that never expire, and locks that nobody can hold.

    To be called when no worker has run for longer than a TTL.
    """
    with redis.Redis(port=port, decode_responses=True) as client:
        connection: Any = client
        for key in sorted(connection.scan_iter(count=1000)):
            if key.startswith((*QUEUES_OWN, INDEX)):
                continue
            if key.endswith(OF_A_LINE):
                recorder.log("line left", key=key)
            elif connection.pttl(key) == -1:
                recorder.log("immortal", key=key)
            for name, publication in _jobs(connection, key):
                recorder.log(name, pub=publication)
            if key.startswith("lock:"):
                holder = connection.get(key) or ""
                recorder.log("orphan", key=f"{key}: {holder.partition(';')[2]}")


def _jobs(connection: Any, key: str) -> list[tuple[str, str]]:
    """Name the jobs that are parked or were set aside under a key."""
    if key.endswith(":parked"):
        return [("left", name[1:]) for name in connection.hkeys(key) if name.startswith("=")]
    if key.endswith(":dead"):
        return [("dead", text.partition("|")[0]) for text in connection.lrange(key, 0, -1)]
    return []
