"""Which process this is: written into every lock it holds, so that people and sweeps find it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from giliran.holder import field, parse


def stamp() -> str:
    """Name this process: host, boot, pid namespace, pid and start, as `name=value` pairs."""
    return _stamp(os.getpid())


def is_dead(fields: Mapping[str, str]) -> bool:
    """Tell whether the process that a stamp names is proven dead.

    Proof is only what this very machine and pid namespace say: no such process, another start time
    under its pid, or a zombie without a thread that still runs. A process that may not be asked,
    that is stopped, or that lives elsewhere, is not proven dead.
    """
    here = parse(f";{stamp()}")
    same = all(here[name] and fields.get(name) == here[name] for name in ("host", "boot", "ns"))
    pid = fields.get("pid", "")
    if not same or not pid.isdigit() or int(pid) <= 0 or not fields.get("start"):
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    started = _started(int(pid))
    if not started:
        return False  # It ended just now, or its /proc is hidden: the next look will tell.
    return started != fields["start"] or _is_zombie(int(pid))


def _is_zombie(pid: int) -> bool:
    """Tell whether all threads of a process have ended and only its parent has not noticed."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        states = [_stat(f"{thread}/stat")[0] for thread in threads]
    except (OSError, IndexError):
        return False
    return bool(states) and set(states) <= {"Z", "X"}


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
    """Read the process' start in clock ticks since boot: field 22 of its stat."""
    fields = _stat(f"/proc/{pid}/stat")
    return fields[19] if len(fields) > 19 else ""


def _stat(path: str) -> list[str]:
    """Read the fields after the process' name, which may hold anything: the first is its state."""
    _, _, rest = _read(path).rpartition(") ")
    return rest.split()
