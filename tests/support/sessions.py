"""Processes of another session, such as a worker and all that it started."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def session_members(leader: int) -> list[int]:
    """Return the living processes of a session; zombies are dead."""
    members: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # The name, in parentheses, may hold anything: count from its end.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            state, session = fields[0], int(fields[3])
            members += [int(entry.name)] if session == leader and state != "Z" else []
    return members


def children_of(parent: int) -> list[int]:
    """Return the children of a process; none if it is gone."""
    children: list[int] = []
    for thread in Path(f"/proc/{parent}/task").glob("*"):
        with suppress(OSError):
            children += [int(pid) for pid in (thread / "children").read_text().split()]
    return children
