"""The lease of a dead holder ends, and no other; who is called stands in test_called.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.scripts.backends import FENCE, LINE, PARKED, Key, Row, check, each, give_all
from tests.scripts.words import (
    DIED,
    FOR_T1,
    FOREIGN,
    HELD,
    JOBS,
    NOBODY,
    OTHERS,
    RISEN,
    T1,
    TOLD,
    A,
    B,
    lock,
    reclaim,
    reserved,
)  # fmt: skip

from giliran.scripts import RECLAIM

if TYPE_CHECKING:
    from tests.scripts.backends import Backend

RECLAIMED, CHANGED = ["reclaimed", NOBODY], ["changed", NOBODY]
FREE = {"K": None, **RISEN}

ROWS = [
    Row("it ends", reclaim(), RECLAIMED, DIED, FREE),
    Row("without an end of its own", reclaim(), RECLAIMED,
        {"K": lock(B, OTHERS, acquired="1", px=None)}, FREE),
    Row("the fence rises above its own", reclaim(), RECLAIMED,
        {**DIED, FENCE: Key("8999999999999999")},
        {"K": None, FENCE: Key("9000000000000000", 172_800_000)}),
    Row("a fence that is no number is replaced", reclaim(), RECLAIMED, {**DIED, FENCE: Key("x")},
        FREE),
    Row("whose token it was does not matter", reclaim(), RECLAIMED,
        {"K": lock(A, OTHERS, acquired="1")}, FREE),
    Row("who cannot publish calls nobody", reclaim(routes=""),
        ["reclaimed", r"\['elsewhere', 'a'\]"], {**DIED, **JOBS}, FREE),
    # nothing was done
    Row("a later lease of it", reclaim(), CHANGED, {**HELD, **JOBS}),
    Row("another's lease", reclaim(), CHANGED, {"K": lock(B), **JOBS}),
    Row("its lease is over", reclaim(), CHANGED, JOBS),
    Row("reserved by another", reclaim(), CHANGED, FOR_T1),
    Row("again: it is told again", reclaim(), ["changed", T1], {"K": reserved("t1"), **JOBS}),
    Row("again: who was called has come", reclaim(), CHANGED, {"K": reserved("t1")}),
    Row("a foreign value", reclaim(), CHANGED, {"K": Key(FOREIGN), **JOBS}),
    Row("a foreign value that is what was told", reclaim(), CHANGED, {"K": Key(TOLD), **JOBS}),
    Row("a hash", reclaim(), CHANGED, {"K": Key({"x": "1"}), **JOBS}),
    # errors write nothing
    *(Row(f"token {t!r}", reclaim(t), "GILIRAN token", DIED) for t in ("", "a" * 31, "g" * 32)),
    *(Row(f"told {t!r}", reclaim(told=t), "GILIRAN told", DIED)
      for t in ("", ";type=next in line", FOREIGN)),
    Row("a fence of another type", reclaim(), "WRONGTYPE", {**DIED, FENCE: Key({"x": "1"})}),
]  # fmt: skip


@each(ROWS)
def test_reclaim(backend: Backend, row: Row) -> None:
    check(backend, RECLAIM, row)


def test_out_of_memory_refuses_it_whole(own_backend: Backend) -> None:
    give_all(own_backend, {**DIED, **JOBS})
    own_backend.fill_up()
    check(own_backend, RECLAIM, Row("", reclaim(), "OOM"))


def test_a_line_of_another_type_does_not_keep_a_dead_holder(backend: Backend) -> None:
    for key in (LINE, PARKED):
        backend.flush()
        given = {**DIED, **JOBS, key: Key("x")}
        check(backend, RECLAIM, Row("", reclaim(), ["reclaimed", NOBODY], given, FREE))
