"""A time limit may arrive at any moment, also while a body is being left."""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Callable
from textwrap import dedent
from types import FunctionType
from typing import Any, cast

import pytest

from giliran import Giliran
from giliran.interrupt import Gate
from giliran.term import Term
from giliran.testing import FakeStore, fake


class TimeLimit(Exception):
    """What a signal handler raises, such as a queue's soft time limit."""


class Moments(ast.NodeTransformer):
    """Writes a call before each statement of a function.

    A trace function could raise at any line too, but CPython 3.11 may then spin for ever.
    """

    def __init__(self, arrive: Callable[[], None]) -> None:
        self._arrive = arrive

    def inside(self, function: FunctionType) -> FunctionType:
        """Return the function with those calls."""
        tree = self.visit(ast.parse(dedent(inspect.getsource(function))))
        made: dict[str, Any] = {}
        code = compile(ast.fix_missing_locations(tree), function.__code__.co_filename, "exec")
        exec(code, {**function.__globals__, "_arrive": self._arrive}, made)
        return cast("FunctionType", made[function.__name__])

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        body = getattr(node, "body", None)
        if isinstance(body, list) and not isinstance(node, ast.Module):
            node.body = [  # type: ignore[attr-defined]
                each
                for statement in cast("list[ast.stmt]", body)
                for each in (ast.parse("_arrive()").body[0], statement)
            ]
        return node


class Clock:
    """Lets the time limit arrive once, at a chosen one of the moments that are passed."""

    def __init__(self) -> None:
        self._left = 0

    def arrive(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise TimeLimit

    def cut_short(self, call: Callable[[], object], moment: int) -> bool:
        """Call, with the time limit at this moment, from 1 on; tell whether it got there."""
        self._left = moment
        with contextlib.suppress(TimeLimit):
            call()
        return self._left <= 0


@pytest.mark.parametrize("hold", [False, True])
def test_a_body_left_by_a_time_limit_is_left_for_good(
    hold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease is kept no longer, and it can be interrupted no more."""
    clock = Clock()
    moments = Moments(clock.arrive)
    for kind, function in ((Term, Term.stop), (Gate, Gate.close)):
        name = function.__name__
        monkeypatch.setattr(kind, name, moments.inside(cast("FunctionType", function)))
    turns = Giliran("redis://127.0.0.1:1")
    beats: list[Any] = []

    @turns.exclusive("lock:{order}")
    def work(order: int) -> None:
        beats.append(store._kept["lock:1"])

    def block() -> None:
        with turns.hold("lock:1"):
            beats.append(store._kept["lock:1"])

    store: FakeStore
    moment = 0
    with fake(turns) as store:
        while True:
            moment += 1
            arrived = clock.cut_short(block if hold else lambda: work(1), moment)
            beat = beats.pop()
            assert beat.over, moment
            beat.gate.fire()
            assert not beat.gate.fired, moment
            assert not store.locks, moment
            if not arrived:
                break
    turns.close()
    assert moment > 7
