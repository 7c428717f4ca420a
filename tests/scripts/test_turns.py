"""Claims where there is a line: whose turn it is, who has to wait, and who leaves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.scripts.backends import LINE, PARKED, RECORD, Key, Row, check, each, give_all
from tests.scripts.words import (
    CLAIMED,
    FOR_T1,
    FOREIGN,
    HELD,
    JOBS,
    TAKEN,
    A,
    B,
    claim,
    entry,
    entry_after,
    lock,
    lock_after,
    plain,
    ranks,
    record,
    reserved,
    running_after,
    shelf,
    waiter,
)  # fmt: skip

from giliran.scripts import CLAIM

if TYPE_CHECKING:
    from tests.scripts.backends import Backend

WAITER_AFTER = r"wait\|0\|\|\d{13}\|\|\|"
RANK = r"\d{16}"
NO_PLACE = ("-1", "0")
QUEUED = ["queued", "2", *NO_PLACE]
NEXT = ["busy", r"\d+", ";type=next in line"]
BUSY = ["busy", r"\d+", "v=1;.*pub=p2;.*"]


def waiters(**lives: int) -> dict[str, Key]:
    """Give a line of waiting processes, in this order."""
    return {
        LINE: ranks(9_000, **{w: float(i) for i, w in enumerate(lives)}),
        PARKED: shelf(9_000, **{w: waiter(ends=f"@{ms}") for w, ms in lives.items()}),
    }


TURNS = [
    Row("free and first", plain(ticket="t1"), CLAIMED, JOBS, TAKEN),
    Row("free and alone", plain(ticket="t2"), CLAIMED,
        {LINE: ranks(t2=20), PARKED: shelf(t2=entry(), t2_="P2")}, TAKEN),
    Row("free, without a ticket", plain(), QUEUED, JOBS),
    Row("free, with a new ticket", plain(ticket="t3"), QUEUED, JOBS),
    Row("free, but not first", plain(ticket="t2"), QUEUED, JOBS),
    Row("free, here before the first", plain(ticket="t0", rank="9"), CLAIMED, JOBS, TAKEN),
    Row("free, as early as the first", plain(ticket="t0", rank="10"), CLAIMED, JOBS, TAKEN),
    Row("free, here after the first", plain(ticket="t0", rank="11"), QUEUED, JOBS),
    Row("free, and nobody in line though some are to end", plain(ticket="t3"), CLAIMED,
        {PARKED: shelf(t1=entry(verdict="gave_up"), t1_="P1")}, TAKEN),
    Row("reserved for it", plain(ticket="t1"), CLAIMED, FOR_T1, TAKEN),
    Row("reserved for it, though others are before it", plain(ticket="t2"), CLAIMED,
        {"K": reserved("t2", by=B), **JOBS}, TAKEN),
    Row("reserved for it, and its entry has gone", plain(ticket="t0"), CLAIMED,
        {"K": reserved("t0", by=B), **JOBS}, TAKEN),
    Row("reserved for it, and the line has gone", plain(ticket="t0"), CLAIMED,
        {"K": reserved("t0", by=B)}, TAKEN),
    Row("reserved for another", plain(ticket="t2"),
        ["busy", r"[34]\d{3}", ";type=next in line", "2", *NO_PLACE], FOR_T1),
    Row("reserved for one whose name begins alike", plain(ticket="t1"),
        [*NEXT, "0", *NO_PLACE], {"K": reserved("t11")}),
    Row("reserved, and without a ticket", plain(), [*NEXT, "2", *NO_PLACE], FOR_T1),
    Row("reserved by its own token is not held by it", plain(token=A),
        [*NEXT, "2", *NO_PLACE], {"K": reserved("t1", by=A), **JOBS}),
    Row("reserved for one that was here later", plain(ticket="t0", rank="9"), CLAIMED,
        FOR_T1, TAKEN),
    Row("reserved for one that was here later and has left the line", plain(ticket="t0", rank="9"),
        CLAIMED, {"K": reserved("t1", by=B)}, TAKEN),
    Row("reserved for one that was here earlier", plain(ticket="t0", rank="11"),
        [*NEXT, "0", *NO_PLACE], {"K": reserved("t1", by=B)}),
    Row("reserved for one that was here later, but another was here first",
        plain(ticket="t0", rank="19"), [*NEXT, "2", *NO_PLACE],
        {"K": reserved("t3", by=B, rank="30"), **JOBS}),
    Row("held", plain(ticket="t1"), [*BUSY, "2", *NO_PLACE], {**HELD, **JOBS}),
    Row("held, though it was here first", plain(ticket="t0", rank="1"), [*BUSY, "2", *NO_PLACE],
        {**HELD, **JOBS}),
    Row("a foreign value without TTL", plain(ticket="t1"), ["busy", "-1", "", "2", *NO_PLACE],
        {"K": Key(FOREIGN, None), **JOBS}),
    Row("a foreign value like ours", plain(ticket="t1"), ["busy", r"\d+", "", "2", *NO_PLACE],
        {"K": Key("reserved;pub=t1"), **JOBS}),
    Row("a hash as lock", plain(ticket="t1"), ["wrongtype", "hash"],
        {"K": Key({"x": "1"}), **JOBS}),
    Row("sent again: it is ours", plain(ticket="t1"), ["held", "7", "1"],
        {"K": lock(), **JOBS}, {"K": lock_after(30_000, "7")}),
]  # fmt: skip

# Its record says that it need not run: it leaves the line, and what was reserved for it is free.
DONE = {RECORD: record("done", result="5")}
LEFT: dict[str, Key | None] = {"K": None}
NEEDLESS = [
    Row("done", claim(ticket="t1"), ["done", "done", "5", "1"], {**FOR_T1, **DONE}, LEFT),
    Row("done, reserved for another", claim(ticket="t2"), ["done", "done", "5", "1"],
        {**FOR_T1, **DONE}),
    Row("done, reserved for one that was here later", claim(ticket="t0", rank="1"),
        ["done", "done", "5", "1"], {**FOR_T1, **DONE}),
    Row("done, held", claim(ticket="t1"), ["done", "done", "5", "1"],
        {"K": lock(B), **JOBS, **DONE}),
    Row("mismatch", claim(ticket="t1", fingerprint="g"), ["mismatch"], {**FOR_T1, **DONE}, LEFT),
    Row("in doubt", claim(ticket="t1", after_crash="hold"), ["in_doubt", "1"],
        {**FOR_T1, RECORD: record("running")}, LEFT),
    Row("gave up", claim(ticket="t1", attempts="1"), ["gave_up", "1"],
        {**FOR_T1, RECORD: record("running")}, LEFT),
    Row("in doubt, and here before the one it is reserved for",
        claim(ticket="t0", rank="1", after_crash="hold"), ["in_doubt", "1"],
        {**FOR_T1, RECORD: record("running")}),
    Row("a crashed attempt goes on when it is called", claim(ticket="t1"), ["held", r"\d{16}", "2"],
        {**FOR_T1, RECORD: record("running")}, {**TAKEN, RECORD: running_after(2)}),
    Row("superseded, though its request is not done", claim(ticket="t1"),
        ["done", "superseded", "", "0"],
        {**FOR_T1, "{K}:delivered:p1": Key({"state": "superseded"})}, LEFT),
    Row("its delivery ended otherwise", claim(ticket="t1"), ["held", r"\d{16}", "1"],
        {**FOR_T1, "{K}:delivered:p1": Key({"state": "done"})},
        {**TAKEN, RECORD: running_after(1)}),
    Row("superseded", claim(kind="delivery", fingerprint="", ticket="t1"),
        ["done", "superseded", "", "1"],
        {**FOR_T1, RECORD: Key({"state": "superseded", "fingerprint": "", "attempt": "1"})}, LEFT),
]  # fmt: skip

# How w stands in line.
ALONE = {LINE: Key({"w": RANK}, 15_000), PARKED: shelf(15_000, w=WAITER_AFTER)}
BEHIND_V = {
    LINE: Key({"v": "0", "w": RANK}, 15_000),
    PARKED: shelf(15_000, v=WAITER_AFTER, w=WAITER_AFTER),
}
WAITS = [
    Row("held: it waits", plain(ticket="w", alive="15000"), [*BUSY, "1", "0", RANK], HELD, ALONE),
    Row("held: it waits behind another", plain(ticket="w", alive="15000"), [*BUSY, "2", "1", RANK],
        {**HELD, **waiters(v=9_000)}, BEHIND_V),
    Row("the line lives as long as the last of it", plain(ticket="w", alive="1000"),
        [*BUSY, "2", "1", RANK], {**HELD, **waiters(v=9_000)},
        {LINE: Key({"v": "0", "w": RANK}, 9_000),
         PARKED: shelf(9_000, v=WAITER_AFTER, w=WAITER_AFTER)}),
    Row("it says that it is alive, and was not called", plain(ticket="w", alive="15000"),
        [*BUSY, "1", "0", "0"], {**HELD, **waiters(w=1), PARKED: shelf(9_000, w=waiter(1))},
        {LINE: Key({"w": "0"}, 15_000), PARKED: shelf(15_000, w=WAITER_AFTER)}),
    Row("it comes back to its old rank", plain(ticket="w", alive="15000", rank="7"),
        [*BUSY, "3", "0", "7"], {**HELD, **JOBS},
        {LINE: ranks(w=7, t1=10, t2=20), PARKED: shelf(
            w=WAITER_AFTER, t1=entry_after(), t1_="P1", t2=entry_after(), t2_="P2")}),
    Row("behind jobs the line has no end", plain(ticket="w", alive="15000"),
        [*BUSY, "3", "2", RANK], {**HELD, **JOBS},
        {LINE: Key({"t1": "10", "t2": "20", "w": RANK}, None), PARKED: shelf(
            w=WAITER_AFTER, t1=entry_after(), t1_="P1", t2=entry_after(), t2_="P2")}),
    Row("free, but others were first: it waits", plain(ticket="w", alive="15000"),
        ["queued", "2", "1", RANK], waiters(v=9_000), BEHIND_V),
    Row("reserved for another: it waits", plain(ticket="w", alive="15000"),
        [*NEXT, "2", "1", RANK], {"K": reserved("v", by=B), **waiters(v=9_000)}, BEHIND_V),
    Row("a foreign value without TTL: it waits", plain(ticket="w", alive="15000"),
        ["busy", "-1", "", "1", "0", RANK], {"K": Key(FOREIGN, None)}, ALONE),
    Row("free: it does not wait", plain(ticket="w", alive="15000"), CLAIMED, after=TAKEN),
    Row("its own publication holds it: it does not wait", plain(ticket="w", alive="15000"),
        ["duplicate", r"\d+", "v=1.*", "0", *NO_PLACE], {"K": lock(B)}),
    Row("done: it does not wait", claim(ticket="w", alive="15000"), ["done", "done", "5", "1"],
        {**HELD, **DONE}),
    # errors write nothing
    Row("to wait takes a ticket", plain(alive="15000"), "GILIRAN to wait", HELD),
    *(Row(f"alive {n!r}", plain(ticket="w", alive=n), "GILIRAN to wait", HELD)
      for n in ("x", "nan", "inf", "-1", "0", "1.5")),
    *(Row(f"rank {n!r}", plain(ticket="w", rank=n), "GILIRAN rank", JOBS)
      for n in ("x", "nan", "inf", "-1", "1.5", "1e18")),
    Row("a line of another type", plain(ticket="t1"), "WRONGTYPE",
        {LINE: Key("x"), PARKED: JOBS[PARKED]}),
    Row("a line of another type, and called", claim(ticket="t1"), "WRONGTYPE",
        {"K": reserved("t1"), LINE: Key("x"), PARKED: JOBS[PARKED]}),
    Row("parked of another type", claim(ticket="t1"), "WRONGTYPE", {PARKED: Key("x")}),
    Row("parked of another type, and called", claim(ticket="t1"), "WRONGTYPE",
        {"K": reserved("t1"), PARKED: Key("x")}),
]  # fmt: skip


@each([*TURNS, *NEEDLESS, *WAITS])
def test_claim(backend: Backend, row: Row) -> None:
    check(backend, CLAIM, row)


@each([
    Row("first", plain(ticket="t1"), "OOM", JOBS),
    Row("called", plain(ticket="t1"), "OOM", FOR_T1),
    Row("to wait", plain(ticket="w", alive="15000"), "OOM", HELD),
    Row("done, and called", claim(ticket="t1"), ["done", "done", "5", "1"], {**FOR_T1, **DONE},
        LEFT),
    Row("busy", plain(ticket="t3"), [*BUSY, "2", *NO_PLACE], {**HELD, **JOBS}),
])  # fmt: skip
def test_out_of_memory_refuses_a_claim_whole(own_backend: Backend, row: Row) -> None:
    give_all(own_backend, row.given)
    own_backend.fill_up()
    check(own_backend, CLAIM, Row(row.name, row.args, row.reply, after=row.after))


def test_a_repeat_of_a_waiting_claim_keeps_its_place(backend: Backend) -> None:
    give_all(backend, {**HELD, **JOBS})
    first = backend.run(CLAIM, plain(ticket="w", alive="15000"))
    backend.run(CLAIM, plain(token=B[:31] + "c", ticket="x", alive="15000"))
    again = backend.run(CLAIM, plain(ticket="w", alive="15000"))
    assert again[-2:] == first[-2:]
    assert again[-3] == 4
