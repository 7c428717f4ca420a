"""Under eventlet nothing is promised, and that is said at once."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from giliran import Giliran


@pytest.mark.parametrize("patched", [True, False])
def test_eventlet_is_refused_where_it_has_replaced_threads(
    monkeypatch: pytest.MonkeyPatch, patched: bool
) -> None:
    """A stand-in for the real one, which warns on import that nobody should use it."""
    patcher = ModuleType("eventlet.patcher")
    vars(patcher)["is_monkey_patched"] = lambda name: patched and name == "thread"
    monkeypatch.setitem(sys.modules, "eventlet.patcher", patcher)
    if patched:
        with pytest.raises(RuntimeError, match="use gevent or threads"):
            Giliran("redis://127.0.0.1:1")
    else:
        Giliran("redis://127.0.0.1:1")
