"""A time limit may arrive at any moment, also while a body is being left."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import pytest

from giliran import Giliran
from giliran.interrupt import Gate
from giliran.term import Term
from giliran.testing import FakeStore, fake


class TimeLimit(Exception):
    """What a signal handler raises, such as a queue's soft time limit."""


def lines(code: CodeType) -> list[tuple[CodeType, int]]:
    """Return where it may arrive in a function."""
    found = {line for _, _, line in code.co_lines() if line and line > code.co_firstlineno}
    return [(code, line) for line in sorted(found)]


MOMENTS = [*lines(Term.stop.__code__), *lines(Gate.close.__code__)]


def cut_short(call: Callable[[], object], code: CodeType, line: int) -> bool:
    """Let the time limit arrive once at a line while calling; tell whether it got there."""
    arrived = False

    def at(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal arrived
        if frame.f_code is not code:
            return None
        if event == "line" and frame.f_lineno == line and not arrived:
            arrived = True
            raise TimeLimit
        return at

    before = sys.gettrace()
    sys.settrace(at)
    try:
        call()
    except TimeLimit:
        pass
    finally:
        sys.settrace(before)
    return arrived


@pytest.mark.parametrize("hold", [False, True])
def test_a_body_left_by_a_time_limit_is_left_for_good(hold: bool) -> None:
    """Its lease is kept no longer, and it can be interrupted no more."""
    turns = Giliran("redis://127.0.0.1:1")
    beats: list[Any] = []

    @turns.exclusive("lock:{order}")
    def work(order: int) -> None:
        beats.append(store._kept["lock:1"])

    def block() -> None:
        with turns.hold("lock:1"):
            beats.append(store._kept["lock:1"])

    arrived: list[bool] = []
    store: FakeStore
    with fake(turns) as store:
        for code, line in MOMENTS:
            arrived.append(cut_short(block if hold else lambda: work(1), code, line))
            beat = beats.pop()
            assert beat.over, line
            beat.gate.fire()
            assert not beat.gate.fired, line
            assert not store.locks, line
    turns.close()
    assert sum(arrived) >= 7  # The rest is for bodies that were interrupted, or forked.
