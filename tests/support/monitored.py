"""What a server is asked, as MONITOR tells it."""

from __future__ import annotations

from typing import Any


def commands_until(monitor: Any, last: str) -> list[str]:
    """Read the top-level commands, without what scripts call and what connecting says."""
    seen: list[str] = []
    while not seen or seen[-1] != last:
        entry: dict[str, str] = monitor.next_command()
        if entry["client_type"] != "lua" and not entry["command"].startswith(("CLIENT", "HELLO")):
            seen.append(entry["command"])
    return seen
