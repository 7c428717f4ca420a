"""What a test may leave behind: nothing but keys that expire by themselves."""

from __future__ import annotations

import fnmatch
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import redis

if TYPE_CHECKING:
    from collections.abc import Sequence

# Python itself starts these once, and keeps them until the end.
_HELPERS = (b"multiprocessing.resource_tracker", b"multiprocessing.forkserver")


def wipe(url: str) -> None:
    """Empty a server: keys and scripts."""
    with redis.Redis.from_url(url) as client:
        client.flushall()
        client.script_flush()


def keys_without_ttl(url: str, allowed: Sequence[str] = ()) -> list[str]:
    """Return the keys in all databases that never expire and match none of the globs."""
    with redis.Redis.from_url(url) as client:
        databases = [int(name.removeprefix("db")) for name in client.info("keyspace")]
    found: list[str] = []
    for database in databases:
        with redis.Redis.from_url(url, db=database) as client:
            for raw in client.scan_iter(count=1000):
                key = raw.decode(errors="backslashreplace")
                if not any(fnmatch.fnmatchcase(key, glob) for glob in allowed):
                    found += [key] if client.pttl(raw) == -1 else []
    return sorted(found)


def giliran_threads() -> list[str]:
    """Return the names of the library's threads that are alive."""
    return [t.name for t in threading.enumerate() if t.name.startswith("giliran-")]


def child_processes() -> dict[int, str]:
    """Return this process's children, zombies too, with their command lines."""
    children: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # The name, in parentheses, may hold anything: count from its end.
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == os.getpid() and not any(helper in command for helper in _HELPERS):
            words = command.replace(b"\0", b" ").decode(errors="replace").strip()
            children[int(entry.name)] = words or "a zombie"
    return children
