"""The Lua files, ready to run. Those that move the line have `line.lua` in front of them."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Any

from giliran.steps import Script


def _read(name: str) -> str:
    return resources.files(__name__).joinpath(f"{name}.lua").read_text("utf-8")


def _script(name: str, *, before: str = "") -> Script:
    whole = before + _read(name)
    return Script(name, whole, hashlib.sha1(whole.encode()).hexdigest())  # noqa: S324  Redis' own id


_LINE = _read("line")
CLAIM, FINISH = _script("claim", before=_LINE), _script("finish", before=_LINE)
PARK, LEAVE = _script("park", before=_LINE), _script("leave", before=_LINE)
OFFER, SWEEP = _script("offer", before=_LINE), _script("sweep", before=_LINE)
RECLAIM = _script("reclaim", before=_LINE)
RENEW, LINES = _script("renew"), _script("lines")
ALL = (CLAIM, RENEW, FINISH, PARK, LEAVE, OFFER, SWEEP, RECLAIM, LINES)


def text(raw: Any) -> str:
    """Read a bulk string whatever the client made of it."""
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)
