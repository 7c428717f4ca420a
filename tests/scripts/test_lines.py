from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.scripts.backends import INDEX, Key, OnFake, Row, check, each, give_all
from tests.scripts.words import ranks

from giliran.scripts import LINES

if TYPE_CHECKING:
    from tests.scripts.backends import Backend

MARKED, LOOKS = INDEX
NOW = r"1\d{12}"
LATE = 9_000_000_000_000
KNOWN = {MARKED: ranks(K=5), LOOKS: ranks(K=7)}


def both(marked: str, look: str) -> dict[str, Key]:
    return {MARKED: Key({"K": marked}, None), LOOKS: Key({"K": look}, None)}


ROWS = [
    Row("mark", ("mark", "K"), [], after=both(NOW, NOW)),
    Row("mark again: the look stays", ("mark", "K"), [], KNOWN, both(NOW, "7")),
    Row("hurry", ("hurry", "K"), [], after=both(NOW, NOW)),
    Row("hurry: it is looked at now", ("hurry", "K"), [],
        {MARKED: ranks(K=5), LOOKS: ranks(K=LATE)}, both(NOW, NOW)),
    Row("look: nothing there", ("look", ""), []),
    Row("look: nothing due", ("look", ""), [], {MARKED: ranks(K=5), LOOKS: ranks(K=LATE)}),
    Row("look: what is due is not due for others", ("look", ""), ["K"], KNOWN, both("5", NOW)),
    Row("look: the longest waiting first", ("look", ""), ["L", "K"],
        {LOOKS: ranks(K=9, L=3, M=LATE)},
        {LOOKS: Key({"K": NOW, "L": NOW, "M": str(LATE)}, None)}),
    Row("clear", ("clear", "K", str(LATE)), [], KNOWN, {MARKED: None, LOOKS: None}),
    Row("clear: marked since", ("clear", "K", str(LATE)), [],
        {MARKED: ranks(K=LATE), LOOKS: ranks(K=7)}),
    Row("clear: found empty long ago", ("clear", "K", "1000"), [], KNOWN),
    Row("clear: nobody says when it was empty", ("clear", "K", ""), "GILIRAN clear", KNOWN),
    Row("clear: not marked", ("clear", "L", str(LATE)), [], KNOWN),
    Row("a key of every kind of character", ("mark", "a{b}:|;=\n é"), [],
        after={MARKED: Key({"a{b}:|;=\n é": NOW}, None), LOOKS: Key({"a{b}:|;=\n é": NOW}, None)}),
    Row("what", ("what", "K"), "GILIRAN what"),
    Row("marked of another type", ("mark", "K"), "WRONGTYPE", {MARKED: Key("x")}),
    Row("looks of another type", ("look", ""), "WRONGTYPE", {LOOKS: Key("x")}),
]  # fmt: skip


@each(ROWS)
def test_lines(backend: Backend, row: Row) -> None:
    check(backend, LINES, row)


def test_a_line_is_looked_at_once_a_second_however_many_look() -> None:
    backend = OnFake()
    backend.run(LINES, ("mark", "K"))
    seen = [0] * 4
    for second in range(4):
        backend.redis.us += 1_000_000
        for _ in range(3):
            seen[second] += len(backend.run(LINES, ("look", ""))) - 1
    assert seen == [1, 1, 1, 1]


def test_a_line_found_empty_is_kept_for_a_minute() -> None:
    backend = OnFake()
    backend.run(LINES, ("mark", "K"))
    backend.redis.us += 60_000_000
    backend.run(LINES, ("clear", "K", str(LATE)))
    assert len(backend.dump()) == 2
    backend.redis.us += 1_000
    backend.run(LINES, ("clear", "K", str(LATE)))
    assert backend.dump() == {}


def test_a_look_takes_a_hundred_and_the_next_takes_others(backend: Backend) -> None:
    give_all(backend, {LOOKS: ranks(**{f"K{i}": float(i) for i in range(150)})})
    first, second = (backend.run(LINES, ("look", ""))[1:] for _ in range(2))
    assert [len(first), len(second)] == [100, 50]
    assert len({*first, *second}) == 150


@pytest.mark.parametrize("what", ["mark", "hurry", "look"])
def test_out_of_memory_refuses_it_whole(own_backend: Backend, what: str) -> None:
    give_all(own_backend, KNOWN)
    own_backend.fill_up()
    check(own_backend, LINES, Row("", (what, "K"), "OOM"))
