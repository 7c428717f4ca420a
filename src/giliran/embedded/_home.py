"""The private folder of a server, and the sweeping of those that killed programs left."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import shutil
import tempfile
from pathlib import Path

_HOME = re.compile(r"giliran-(\d{1,9})-\w+")


def make_home() -> Path:
    """Make a private folder with a short path, and remove abandoned ones."""
    root = tempfile.gettempdir()
    if len(root) > 60:  # the path of a socket file has to stay under 104 bytes
        root = "/tmp"  # noqa: S108 - mkdtemp makes a private folder in it
    _sweep(root)
    return Path(tempfile.mkdtemp(prefix=f"giliran-{os.getpid()}-", dir=root))


def _sweep(root: str) -> None:
    """Remove folders of killed programs; a few at a time, and none that could be in use."""
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        ours = (e for e in itertools.islice(entries, 10_000) if _HOME.fullmatch(e.name))
        for entry in itertools.islice(ours, 32):
            if _is_abandoned(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
    match = _HOME.fullmatch(entry.name)
    with contextlib.suppress(FileNotFoundError):
        if match is None or entry.is_symlink() or entry.stat().st_uid != os.getuid():
            return False
        if _exists(int(match[1])):
            return False
        with Path(entry.path, "log").open("rb") as log:
            try:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
    return True


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
