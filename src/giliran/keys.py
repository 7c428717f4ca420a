"""Every Redis key of a resource, one function each.

`K` is the lock key exactly as the user named it. Its companions share its cluster slot: if `K`
carries a hash tag of its own they carry the same one, otherwise `K` itself becomes the tag.
"""

from __future__ import annotations


def _beside(lock_key: str, suffix: str) -> str:
    return f"{lock_key}:{suffix}" if "{" in lock_key else f"{{{lock_key}}}:{suffix}"


def fence(lock_key: str) -> str:
    """Integer: the last fencing token of the resource. Lives a day after its last use."""
    return _beside(lock_key, "fence")


def record(lock_key: str, idempotency_key: str) -> str:
    """Hash: what is known of one idempotency key. Lives max_hold + retain, then retain."""
    return _beside(lock_key, f"rec:{idempotency_key}")


def delivery(lock_key: str, publication: str) -> str:
    """Hash: that one published message was finished. Lives as long as a copy may still come."""
    return _beside(lock_key, f"delivered:{publication}")


def line(lock_key: str) -> tuple[str, str]:
    """Sorted set and hash: the tickets in line by rank, and what is parked. Live until empty."""
    return _beside(lock_key, "line"), _beside(lock_key, "parked")


def due(lock_key: str) -> str:
    """Sorted set: when the time of each parked job is over. Lives until empty."""
    return _beside(lock_key, "due")


def dead(lock_key: str) -> str:
    """List: parked jobs that could not be published, newest last. Lives 30 days after it."""
    return _beside(lock_key, "dead")


def bell(lock_key: str, ticket: str) -> str:
    """List: rings for one waiting process. Lives for a second."""
    return f"{line(lock_key)[1]}:{ticket}"


def index(route: str) -> tuple[str, str]:
    """Sorted sets: lines that sweeps of this route look after. As long as the lines are."""
    return f"{{giliran}}:lines:{route}", f"{{giliran}}:looks:{route}"
