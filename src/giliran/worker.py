"""Which process this is: written into every lock it holds, so that people and sweeps find it."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path

from giliran.holder import field


def stamp() -> str:
    """Name this process: host, boot, pid namespace, pid and start, as `name=value` pairs."""
    return _stamp(os.getpid())


@cache
def _stamp(pid: int) -> str:
    return ";".join(
        (
            f"host={field(socket.gethostname())}",
            f"boot={field(_read('/proc/sys/kernel/random/boot_id'))}",
            f"ns={field(_pid_namespace())}",
            f"pid={pid}",
            f"start={_started(pid)}",
        )
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text("ascii").strip()
    except OSError:
        return ""  # Not Linux: then a dead process cannot be proven dead, and waits for its TTL.


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Read the process' start in clock ticks since boot: field 22, counted after the name."""
    _, _, rest = _read(f"/proc/{pid}/stat").rpartition(") ")
    fields = rest.split()
    return fields[19] if len(fields) > 19 else ""
