"""Who is called when a lease ends, when one who was called leaves, and when a sweep comes by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.scripts.backends import (
    LINE,
    PARKED,
    RECORD,
    Key,
    OnFake,
    Row,
    check,
    each,
    give_all,
    values,
)
from tests.scripts.words import (
    DIED,
    JOBS,
    NOBODY,
    RISEN,
    T1,
    T2,
    WAITING,
    A,
    B,
    called,
    entry,
    entry_after,
    finish,
    leave,
    lock,
    ranks,
    reclaim,
    record,
    reserved,
    reserved_after,
    shelf,
    sweep,
    waiter,
)  # fmt: skip

from giliran.scripts import FINISH, LEAVE, RECLAIM, SWEEP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.scripts.backends import Backend

    from giliran.steps import Script

GONE: dict[str, Key | None] = {LINE: None, PARKED: None}
ODD = "a%2F.-{}("
FOR_W = reserved_after("w", 1_000)
BELL = {"{K}:parked:w": Key(["1"], 1_000)}
CALLED_T1 = {
    "K": reserved_after("t1"),
    PARKED: shelf(t1=entry_after(called=1, by=A), t1_="P1", t2=entry_after(), t2_="P2"),
}  # fmt: skip
WAITER = called("wait", "w", route="")


def crowd(n: int) -> dict[str, Key]:
    """Give waiters that are gone in front of a job."""
    gone = {f"w{i:02}": waiter(ends="@-1") for i in range(n)}
    return {
        LINE: ranks(**{name: float(i) for i, name in enumerate(gone)}, t1=99),
        PARKED: shelf(**gone, t1=entry(), t1_="P1"),
    }  # fmt: skip


# Given a line, who is called, and what becomes of the line; in all four scripts.
CALLS: list[tuple[str, Mapping[str, Key], str, Mapping[str, Key | None]]] = [
    ("nobody is there", {}, NOBODY, {}),
    ("the first job", JOBS, T1, CALLED_T1),
    ("a waiter, by its bell", WAITING, WAITER,
     {"K": FOR_W, **BELL, PARKED: shelf(9_000, w=r"wait.1.*")}),
    ("a waiter whose bell rang before", {**WAITING, "{K}:parked:w": Key(["1"], 500)}, WAITER,
     {"K": FOR_W, "{K}:parked:w": Key(["1", "1"], 1_000), PARKED: shelf(9_000, w=r"wait.1.*")}),
    ("not a waiter that is dead", {**WAITING, PARKED: shelf(9_000, w=waiter(ends="@0"))},
     NOBODY, GONE),
    ("not a waiter that did not come", {**WAITING, PARKED: shelf(9_000, w=waiter(called=1))},
     NOBODY, GONE),
    ("not one of whom nothing is known", {**JOBS, LINE: ranks(t0=5, t1=10, t2=20)}, T1,
     {**CALLED_T1, LINE: ranks(t1=10, t2=20)}),
    ("15 that are gone, then a job", crowd(15), called("job", "t1", "99", payload="P1"),
     {"K": reserved_after("t1"), LINE: ranks(t1=99),
      PARKED: shelf(t1=entry_after(called=1, by=A), t1_="P1")}),
    ("more that are gone than it looks at", crowd(17), r"\['more'\]",
     {LINE: ranks(w16=16, t1=99), PARKED: shelf(w16=r"wait.*", t1=entry_after(), t1_="P1")}),
    ("a job of another route only if its own come by",
     {**JOBS, PARKED: shelf(t1=entry(route="b"), t1_="P1", t2=entry(), t2_="P2")},
     r"\['elsewhere', 'b'\]", {}),
    ("a job called four times",
     {**JOBS, PARKED: shelf(t1=entry(called=4, by=B), t1_="P1", t2=entry(), t2_="P2")}, T1,
     {**CALLED_T1,
      PARKED: shelf(t1=entry_after(called=5, by=A), t1_="P1", t2=entry_after(), t2_="P2")}),
    ("a job that is to end",
     {**JOBS, PARKED: shelf(t1=entry(verdict="gave_up"), t1_="P1", t2=entry(), t2_="P2")},
     called("job", "t1", verdict="gave_up", payload="P1"),
     {"K": reserved_after("t1"), PARKED: shelf(
         t1=entry_after(called=1, by=A, verdict="gave_up"), t1_="P1", t2=entry_after(), t2_="P2")}),
    ("a payload is told as it is",
     {LINE: ranks(t1=10), PARKED: shelf(t1=entry(), t1_="\n\x00é|")},
     called("job", "t1", payload="\n\x00é|"),
     {"K": reserved_after("t1"),
      PARKED: shelf(t1=entry_after(called=1, by=A), t1_="\n\x00é[|]")}),
    ("a ticket of every kind of character",
     {LINE: ranks(**{ODD: 10}), PARKED: shelf(**{ODD: entry(), f"{ODD}_": "P1"})},
     called("job", ODD, payload="P1"),
     {"K": reserved_after(ODD),
      PARKED: shelf(**{ODD: entry_after(called=1, by=A), f"{ODD}_": "P1"})}),
]  # fmt: skip
FREED: dict[str, Key | None] = {"K": None}

FINISHES = [
    *(Row(name, finish(), ["done", "", told], {"K": lock(), **given}, {**FREED, **after})
      for name, given, told, after in CALLS),
    Row("ours is not called", finish(ticket="t1"), ["done", "", T2], {"K": lock(), **JOBS},
        {"K": reserved_after("t2"), LINE: ranks(t2=20),
         PARKED: shelf(t2=entry_after(called=1, by=A), t2_="P2")}),
    Row("who cannot publish calls nobody", finish(routes=""),
        ["done", "", r"\['elsewhere', 'a'\]"], {"K": lock(), **JOBS}, FREED),
    Row("who can publish many", finish(routes="|x|a|b|"), ["done", "", T1],
        {"K": lock(), **JOBS}, CALLED_T1),
    Row("a route that is part of another's name", finish(routes="|aa|"),
        ["done", "", r"\['elsewhere', 'a'\]"], {"K": lock(), **JOBS}, FREED),
    Row("nobody is called if it was lost", finish(), ["lost", "expired", NOBODY], JOBS),
    Row("again: it is told again", finish(resend="1"), ["released", "", T1],
        {"K": reserved("t1"), **JOBS}),
    Row("again, done: it is told again", finish("done", "1"), ["done", "", T1],
        {"K": reserved("t1"), **JOBS, RECORD: record("done", token=A)}),
    Row("again: another called", finish(resend="1"), ["released", "", NOBODY],
        {"K": reserved("t1", by=B), **JOBS}),
    Row("again: the broker has it already", finish(resend="1"), ["released", "", NOBODY],
        {"K": reserved("t1"), LINE: ranks(t2=20), PARKED: shelf(t2=entry(), t2_="P2")}),
    Row("again: the reservation was taken", finish(resend="1"), ["released", "", NOBODY],
        {"K": lock(B), **JOBS}),
    Row("again: the reservation expired", finish(resend="1"), ["released", "", NOBODY], JOBS),
    Row("parked of another type", finish(), ["done", "", NOBODY],
        {"K": lock(), PARKED: Key("x")}, FREED),
    Row("a line of another type", finish(ticket="t1"), ["done", "", NOBODY],
        {"K": lock(), LINE: Key("x"), PARKED: JOBS[PARKED]}, FREED),
]  # fmt: skip


# The resource is reserved for x, who leaves.
FOR_X = {"K": reserved("x", by=B)}
X_ALONE = {**FOR_X, LINE: ranks(x=1), PARKED: shelf(x=waiter(called=1))}
X_THEN_JOBS = {
    **FOR_X, LINE: ranks(x=1, t1=10, t2=20),
    PARKED: shelf(x=waiter(called=1), t1=entry(), t1_="P1", t2=entry(), t2_="P2"),
}  # fmt: skip
X_THEN_W = {
    **FOR_X, LINE: ranks(9_000, x=1, w=10), PARKED: shelf(9_000, x=waiter(called=1), w=waiter()),
}  # fmt: skip
LEAVES = [
    Row("reserved for it: the next is called", leave("x"), ["job", "t1", "10", "", "a", "P1"],
        X_THEN_JOBS, {**CALLED_T1, LINE: JOBS[LINE]}),
    Row("reserved for it, and it was alone", leave("x"), [], X_ALONE, {**FREED, **GONE}),
    Row("reserved for it: a waiter is called", leave("x"), ["wait", "w", "10", "", "", ""],
        X_THEN_W,
        {"K": FOR_W, **BELL, LINE: WAITING[LINE], PARKED: shelf(9_000, w=r"wait.1.*")}),
    Row("reserved for it: only another process can call the next", leave("x", routes=""),
        ["elsewhere", "a"], X_THEN_JOBS,
        {**FREED, LINE: JOBS[LINE],
         PARKED: shelf(t1=entry_after(), t1_="P1", t2=entry_after(), t2_="P2")}),
    Row("again: it is told again", leave("x"), ["job", "t1", "10", "", "a", "P1"],
        {"K": reserved("t1"), **JOBS}),
    Row("held by another", leave(), [], {"K": lock(B), **WAITING}, GONE),
    Row("its bell is silenced", leave(), [], {"K": lock(B), **WAITING, "{K}:parked:w": Key(["1"])},
        {**GONE, "{K}:parked:w": None}),
    Row("it leaves from the middle", leave("t1"), [], {"K": lock(B), **JOBS},
        {LINE: ranks(t2=20), PARKED: shelf(t2=entry_after(), t2_="P2")}),
    Row("it does not stand there", leave("t3"), [], {"K": lock(B), **JOBS}),
    Row("reserved for another", leave("t2"), [], {"K": reserved("t1", by=B), **JOBS},
        {LINE: ranks(t1=10), PARKED: shelf(t1=entry_after(), t1_="P1")}),
    Row("free: nobody is called by one who leaves", leave("t2"), [], JOBS,
        {LINE: ranks(t1=10), PARKED: shelf(t1=entry_after(), t1_="P1")}),
    Row("its group is free again", leave("t1"), [],
        {LINE: ranks(t1=10), PARKED: shelf(t1=entry(group="g"), t1_="P", _g="t1")}, GONE),
    Row("its group went on without it", leave("t1"), [],
        {LINE: ranks(t1=10),
         PARKED: shelf(t1=entry(called=1, group="g"), t1_="P", t2=entry(group="g"), _g="t2")},
        {LINE: None, PARKED: shelf(t2=entry_after(group="g"), _g="t2")}),
    Row("a hash as lock", leave(), [], {"K": Key({"x": "1"}), **WAITING}, GONE),
    Row("a line of another type", leave(), "WRONGTYPE", {LINE: Key("x")}),
    Row("parked of another type", leave(), "WRONGTYPE", {PARKED: Key("x")}),
]  # fmt: skip


def left_of(given: Mapping[str, Key], after: Mapping[str, Key | None]) -> str:
    """Count the fields that there are still."""
    parked = after.get(PARKED, given.get(PARKED))
    return str(len(parked.value) if parked else 0)


SWEEPS = [
    Row(name, sweep(), [left_of(given, after), "", told], given, after)
    for name, given, told, after in CALLS
]


RECLAIMS = [
    Row(name, reclaim(), ["reclaimed", told], {**DIED, **given}, {**FREED, **RISEN, **after})
    for name, given, told, after in CALLS
]


@each(FINISHES)
def test_finish(backend: Backend, row: Row) -> None:
    check(backend, FINISH, row)


@each(LEAVES)
def test_leave(backend: Backend, row: Row) -> None:
    check(backend, LEAVE, row)


@each(RECLAIMS)
def test_reclaim(backend: Backend, row: Row) -> None:
    check(backend, RECLAIM, row)


@each(SWEEPS)
def test_sweep(backend: Backend, row: Row) -> None:
    check(backend, SWEEP, row)


# Each script that calls: how it is sent, how it is sent again, and when it calls t1.
EACH: dict[str, tuple[Script, tuple[str, ...], tuple[str, ...], Mapping[str, Key]]] = {
    "finish": (FINISH, finish(), finish(resend="1"), {"K": lock(), **JOBS}),
    "leave": (LEAVE, leave("x"), leave("x"), {**FOR_X, **JOBS}),
    "reclaim": (RECLAIM, reclaim(), reclaim(), {**DIED, **JOBS}),
    "sweep": (SWEEP, sweep(), sweep(), JOBS),
}


@pytest.mark.parametrize("name", EACH)
def test_a_repeat_tells_the_same_and_changes_nothing(backend: Backend, name: str) -> None:
    script, first, again, given = EACH[name]
    give_all(backend, given)
    told = backend.run(script, first)
    left = values(backend)
    repeated = backend.run(script, again)
    other = ("done", "released", "reclaimed", "changed")
    assert [one for one in repeated[1:] if one not in other] == [
        one for one in told[1:] if one not in other
    ]
    assert values(backend) == left


@pytest.mark.parametrize("refusal", ["MISCONF", "READONLY"])
@pytest.mark.parametrize("name", EACH)
def test_a_store_that_refuses_to_write_is_left_as_it_is(name: str, refusal: str) -> None:
    backend = OnFake()
    script, args, _, given = EACH[name]
    give_all(backend, given)
    backend.redis.refuses = refusal
    check(backend, script, Row("", args, refusal))


def test_out_of_memory_a_lease_ends_and_the_next_is_called(own_backend: Backend) -> None:
    give_all(own_backend, {"K": lock(), **JOBS})
    own_backend.fill_up()
    check(own_backend, FINISH, Row("", finish(), ["done", "", T1], after=CALLED_T1))


def test_out_of_memory_one_who_was_called_can_leave(own_backend: Backend) -> None:
    give_all(own_backend, X_THEN_W)
    own_backend.fill_up()
    assert own_backend.run(LEAVE, leave("x"))[1:3] == ["wait", "w"]
    assert values(own_backend)["{K}:parked:w"] == ["1"]


def test_out_of_memory_refuses_a_sweep_that_calls_whole(own_backend: Backend) -> None:
    give_all(own_backend, JOBS)
    own_backend.fill_up()
    check(own_backend, SWEEP, Row("", sweep(), "OOM"))
