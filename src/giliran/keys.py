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
