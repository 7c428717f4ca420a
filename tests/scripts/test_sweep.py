"""What a sweep ends; whom it calls stands in test_called.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.scripts.backends import DEAD, DUE, LINE, PARKED, Key, OnFake, Row, check, each, give_all
from tests.scripts.words import (
    FOREIGN,
    HELD,
    JOBS,
    NOBODY,
    T1,
    T2,
    A,
    B,
    called,
    dead,
    entry,
    entry_after,
    lock,
    ranks,
    reserved,
    reserved_after,
    shelf,
    sweep,
    waiter,
)  # fmt: skip

from giliran.scripts import OFFER, SWEEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.scripts.backends import Backend

LATE = 9_000_000_000_000
TOLD = "v=1;.*pub=p2;.*"
LOOKED_AT = {DUE: Key({"t1": r"1\d{12}", "t2": str(LATE)}, None)}


ONE = {LINE: ranks(t1=10), PARKED: shelf(t1=entry(), t1_="P1")}
# A job whose time is over, and one behind it.
OVER = {**JOBS, DUE: ranks(t1=1, t2=LATE)}


def over_at(times: int, verdict: str = "") -> dict[str, Key]:
    """Give one whose time is over and that was called before."""
    first = entry(called=times, by=B, verdict=verdict)
    return {**OVER, PARKED: shelf(t1=first, t1_="P1", t2=entry(), t2_="P2")}


def ended(verdict: str = "gave_up", times: int = 1, by: str = A) -> dict[str, Key | None]:
    """Write what becomes of it."""
    return {
        LINE: ranks(t2=20),
        **LOOKED_AT,
        PARKED: shelf(
            t1=entry_after(called=times, by=by, verdict=verdict), t1_="P1",
            t2=entry_after(), t2_="P2"),
    }  # fmt: skip


def told(verdict: str = "gave_up", kind: str = "job") -> str:
    return called(kind, "t1", "0", verdict, payload="P1")


LEFT_ALONE = [
    Row("nothing is there", sweep(), ["0", "", NOBODY]),
    Row("held", sweep(), ["2", TOLD, NOBODY], {**HELD, **ONE}),
    Row("reserved by another", sweep(), ["2", "", NOBODY], {"K": reserved("t1", by=B), **ONE}),
    Row("a foreign value without TTL", sweep(), ["2", "", NOBODY],
        {"K": Key(FOREIGN, None), **ONE}),
    Row("a hash as lock", sweep(), ["2", "", NOBODY], {"K": Key({"x": "1"}), **ONE}),
    Row("a deadline of nobody, and nothing is left", sweep(), ["0", "", NOBODY],
        {DUE: ranks(t1=LATE)}, {DUE: None}),
    Row("a deadline of nobody that is over", sweep(), ["1", TOLD, NOBODY],
        {**HELD, DUE: ranks(t1=1), PARKED: shelf(w=waiter())}, {DUE: None}),
    Row("a line of another type", sweep(), "WRONGTYPE", {LINE: Key("x")}),
    Row("parked of another type", sweep(), "WRONGTYPE", {**ONE, PARKED: Key("x")}),
    Row("due of another type", sweep(), "WRONGTYPE", {DUE: Key("x")}),
]  # fmt: skip

ENDS = [
    Row("its time is over while another holds", sweep(), ["4", TOLD, NOBODY, told()],
        {**HELD, **OVER}, ended()),
    Row("its time is over and the resource is free: the next is called", sweep(),
        ["4", "", T2, told()], OVER,
        {**ended(), "K": reserved_after("t2"), PARKED:
         shelf(t1=entry_after(called=1, by=A, verdict="gave_up"), t1_="P1",
            t2=entry_after(called=1, by=A), t2_="P2")}),
    Row("not while the resource is reserved for it", sweep(), ["4", "", NOBODY],
        {"K": reserved("t1", by=B), **OVER}, LOOKED_AT),
    Row("not while it is reserved for it by this very sweep", sweep(), ["4", "", T1],
        {"K": reserved("t1"), **OVER}, LOOKED_AT),
    Row("while it is reserved for another", sweep(), ["4", "", NOBODY, told()],
        {"K": reserved("t2", by=B), **OVER}, ended()),
    Row("again, until a broker has it", sweep(), ["4", TOLD, NOBODY, told()],
        {**HELD, **over_at(3, "gave_up")}, ended(times=4)),
    Row("a hundred times at most", sweep(), ["2", TOLD, NOBODY, told(kind="dead")],
        {**HELD, **over_at(99, "gave_up"), DEAD: Key(["older"])},
        {LINE: ranks(t2=20), DUE: ranks(t2=LATE), DEAD: dead("gave_up", "older"),
         PARKED: shelf(t2=entry_after(), t2_="P2")}),
    Row("the first in line was called too often: the next is called", sweep(),
        ["2", "", T2, called("dead", "t1", payload="P1")],
        {**over_at(100), DUE: ranks(t1=LATE, t2=LATE)},
        {LINE: ranks(t2=20), DUE: ranks(t2=LATE), DEAD: dead(), "K": reserved_after("t2"),
         PARKED: shelf(t2=entry_after(called=1, by=A), t2_="P2")}),
    Row("the first in line was called very often", sweep(), ["4", "", T1],
        {**over_at(99), DUE: ranks(t1=LATE, t2=LATE)},
        {"K": reserved_after("t1"), PARKED:
         shelf(t1=entry_after(called=100, by=A), t1_="P1", t2=entry_after(), t2_="P2")}),
    Row("called too often, but it may hold", sweep(), ["4", TOLD, NOBODY],
        {**HELD, **over_at(100), DUE: ranks(t1=LATE, t2=LATE)}),
    Row("as superseded, if it was", sweep(), ["4", TOLD, NOBODY, told("superseded")],
        {**HELD, **over_at(1, "superseded"), LINE: ranks(t2=20)},
        ended("superseded", times=2)),
    Row("of another route it only leaves the line", sweep(routes="|b|"), ["4", TOLD, NOBODY],
        {**HELD, **OVER}, {**ended(times=0, by=""), DUE: ranks(t1=1, t2=LATE)}),
    Row("of another route it lets others pass", sweep(routes="|b|"),
        ["4", "", called("job", "t2", "20", route="b", payload="P2")],
        {**OVER, PARKED: shelf(t1=entry(), t1_="P1", t2=entry(route="b"), t2_="P2")},
        {LINE: ranks(t2=20), "K": reserved_after("t2"), PARKED:
         shelf(t1=entry_after(verdict="gave_up"), t1_="P1",
            t2=entry_after(called=1, by=A, route="b"), t2_="P2")}),
]  # fmt: skip


@each([*LEFT_ALONE, *ENDS])
def test_sweep(backend: Backend, row: Row) -> None:
    check(backend, SWEEP, row)


def many(n: int, route: str, first: int = 0) -> dict[str, str]:
    """Write n entries of a route."""
    return {f"{route}{i:03}": entry(route=route) for i in range(first, first + n)}


def test_a_sweep_ends_16_at_most_and_the_next_ends_others(backend: Backend) -> None:
    jobs = many(20, "a")
    give_all(backend, {**HELD, DUE: ranks(**dict.fromkeys(jobs, 1.0)), PARKED: shelf(**jobs)})
    first = backend.run(SWEEP, sweep())[4:]
    second = backend.run(SWEEP, sweep(B))[4:]
    assert [len(first), len(second)] == [16, 4]
    assert sorted(one[1] for one in [*first, *second]) == sorted(jobs)


def test_jobs_of_another_route_do_not_keep_ours_from_ending(backend: Backend) -> None:
    jobs = {**many(40, "b"), **many(1, "c")}
    give_all(backend, {**HELD, DUE: ranks(**dict.fromkeys(jobs, 1.0)), PARKED: shelf(**jobs)})
    assert [one[1] for one in backend.run(SWEEP, sweep(routes="|c|"))[4:]] == ["c000"]


def test_two_sweeps_at_once_call_and_end_once(backend: Backend) -> None:
    give_all(backend, OVER)
    replies: Sequence[list[object]] = [backend.run(SWEEP, sweep(by)) for by in (A, B)]
    assert [bool(reply[3]) for reply in replies] == [True, False]
    assert [len(reply) for reply in replies] == [5, 4]


def test_a_job_that_was_ended_is_gone_once_a_broker_has_it(backend: Backend) -> None:
    give_all(backend, {**HELD, **OVER})
    backend.run(SWEEP, sweep())
    assert backend.run(OFFER, ("t1", A, "taken"))[1] == "noted"
    left = backend.dump()
    assert set(left[PARKED].value) == {"=t2", "+t2"}
    assert set(left[DUE].value) == set(left[LINE].value) == {"t2"}


def test_a_job_that_ends_whoever_publishes_it_is_ended_a_hundred_times() -> None:
    backend = OnFake()
    give_all(backend, {**HELD, **OVER})
    kinds: list[str] = []
    for _ in range(120):
        backend.redis.us += 5_000_000
        backend.give("K", lock(B).value, None)
        kinds += [one[0] for one in backend.run(SWEEP, sweep())[4:]]
    assert kinds == ["job"] * 99 + ["dead"]


def test_out_of_memory_refuses_an_end_or_carries_it_through(own_backend: Backend) -> None:
    give_all(own_backend, {**HELD, **OVER})
    own_backend.fill_up()
    row = Row("", sweep(), ["4", TOLD, NOBODY, told()], after=ended())
    check(own_backend, SWEEP, row)
