"""A real server whose wall clock is set by the test, with the help of a preloaded library."""

from __future__ import annotations

import contextlib
import mmap
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from time import perf_counter
from typing import Any

import redis
from tests.sim.fake_redis import EPOCH_US

from giliran.embedded import EmbeddedServer, find_server

SOURCE = Path(__file__).with_name("clock.c")
# Valkey looks at the clock about once in a millisecond.
SETTLE = 0.0013


class CannotClock(Exception):
    """There is no C compiler, or this is no system with LD_PRELOAD."""


class Clocked:
    """The server's client and its clock."""

    def __init__(self, client: redis.Redis, clock: mmap.mmap, version: tuple[int, ...]) -> None:
        self.client: Any = client
        self.version = version
        self._clock = clock

    def set(self, us: int) -> None:
        """Set the server's wall clock, and return when it has noticed."""
        self._clock[:8] = struct.pack("=Q", us)
        until = perf_counter() + SETTLE
        while perf_counter() < until:
            pass


def _build(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        raise CannotClock("a virtual clock for a real server needs Linux and a C compiler")
    library = folder / "clock.so"
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return library


@contextlib.contextmanager
def clocked_server() -> Generator[Clocked]:
    """Start a server whose clock stands still until it is set.

    Raises:
        CannotClock: where this cannot be.
    """
    found = find_server()
    with tempfile.TemporaryDirectory(prefix="giliran-clock-") as name:
        folder = Path(name)
        library, file, wrapper = _build(folder), folder / "us", folder / "server"
        file.write_bytes(struct.pack("=Q", EPOCH_US))
        wrapper.write_text(
            f'#!/bin/sh\nexec env SIM_CLOCK={file} LD_PRELOAD={library} {found.path} "$@"\n'
        )
        wrapper.chmod(0o700)
        with (
            file.open("r+b") as opened,
            contextlib.closing(mmap.mmap(opened.fileno(), 8)) as clock,
            EmbeddedServer(binary=str(wrapper), unixsocket=True) as server,
            redis.Redis.from_url(server.url, decode_responses=True) as client,
        ):
            client.config_set("appendfsync", "no")
            client.config_set("appendonly", "yes")  # Jobs are parked nowhere else.
            yield Clocked(client, clock, found.version)
