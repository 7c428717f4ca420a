"""Several resources in one script: all of them or none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.scripts.backends import (
    FENCE,
    KEYS,
    LINE,
    PARKED,
    RECORD,
    Key,
    Row,
    check,
    each,
    give_all,
)
from tests.scripts.words import (
    CLAIMED,
    FENCE_LIFE,
    FOREIGN,
    NOBODY,
    OTHERS,
    T1,
    TAKEN,
    A,
    B,
    called,
    claim,
    entry,
    entry_after,
    finish,
    lock,
    lock_after,
    plain,
    ranks,
    record,
    reserved,
    reserved_after,
    running_after,
    shelf,
    waiter,
)  # fmt: skip

from giliran.scripts import CLAIM, FINISH, RENEW

if TYPE_CHECKING:
    from tests.scripts.backends import Backend

L_FENCE, L_LINE, L_PARKED = "{L}:fence", "{L}:line", "{L}:parked"
PLAIN_KEYS = (*KEYS["claim"][:-1], "L", L_FENCE, L_LINE, L_PARKED)
CLAIM_KEYS = (*PLAIN_KEYS, RECORD)
PLAIN_ENDS = (*KEYS["finish"][:-1], "L", L_LINE, L_PARKED)
FINISH_KEYS = (*PLAIN_ENDS, RECORD)
BOTH = {**TAKEN, "L": TAKEN["K"], L_FENCE: TAKEN[FENCE]}
AGAIN = {"K": lock_after(30_000, "7"), "L": lock_after(30_000, "7")}
RECORDED = {**BOTH, RECORD: running_after(1)}
HELD = [*CLAIMED, r"\d{16}"]
OTHER = lock(B, OTHERS)
L_JOBS = {L_LINE: ranks(t1=10), L_PARKED: shelf(t1=entry(), t1_="P1")}
K_JOBS = {LINE: ranks(t1=10), PARKED: shelf(t1=entry())}

CLAIMS = [
    Row("both are free", claim(), HELD, after=RECORDED),
    Row("both are free, without a record", plain(), HELD, after=BOTH, keys=PLAIN_KEYS),
    Row("each has a fence of its own", plain(), ["held", r"1\d{15}", "1", "9000000000000000"],
        {L_FENCE: Key("8999999999999999")},
        {**BOTH, "L": lock_after(30_000, "9000000000000000"),
         L_FENCE: Key("9000000000000000", FENCE_LIFE)}, PLAIN_KEYS),
    Row("the first is another's", claim(),
        ["busy", r"[12]\d{4}", "v=1;.*pub=p2;.*", "0", "-1", "0"],
        {"K": OTHER}),
    Row("the further one is another's", claim(),
        ["busy", r"[12]\d{4}", "v=1;.*pub=p2;.*", "0", "-1", "0", "1"], {"L": OTHER}),
    Row("both are another's: the first is told", plain(),
        ["busy", r"[12]\d{4}", "v=1;.*pub=p2;.*", "0", "-1", "0"], {"K": OTHER, "L": OTHER},
        keys=PLAIN_KEYS),
    Row("the further one is a foreign program's", plain(),
        ["busy", r"\d+", "", "0", "-1", "0", "1"],
        {"L": Key(FOREIGN)}, keys=PLAIN_KEYS),
    Row("the further one is no lock", plain(), ["wrongtype", "hash", "1"],
        {"L": Key({"x": "1"})}, keys=PLAIN_KEYS),
    Row("the further one is held by this very publication", plain(),
        ["duplicate", r"\d+", "v=1;.*pub=p1;.*", "0", "-1", "0", "1"], {"L": lock(B)},
        keys=PLAIN_KEYS),
    Row("the further one is held by the elder", plain(publication="p3", elder="p1"),
        ["elder", r"\d+", "v=1;.*pub=p1;.*", "0", "-1", "0", "1"], {"L": lock(B)},
        keys=PLAIN_KEYS),
    Row("who meets itself on any is told that", plain(),
        ["duplicate", r"\d+", "v=1;.*pub=p1;.*", "0", "-1", "0", "1"], {"K": OTHER, "L": lock(B)},
        keys=PLAIN_KEYS),
    Row("who meets itself first is told that", plain(publication="p3", elder="p1"),
        ["elder", r"\d+", "v=1;.*pub=p1;.*", "0", "-1", "0"], {"K": lock(B), "L": OTHER},
        keys=PLAIN_KEYS),
    Row("the further one is reserved", plain(),
        ["busy", r"\d+", ";type=next in line", "1", "-1", "0", "1"],
        {"L": reserved("t1", B), **L_JOBS}, keys=PLAIN_KEYS),
    Row("others stand in line for the further one", plain(), ["queued", "1", "-1", "0", "1"],
        L_JOBS, keys=PLAIN_KEYS),
    Row("others stand in line for the first", plain(), ["queued", "1", "-1", "0"],
        K_JOBS, keys=PLAIN_KEYS),
    Row("nobody stands in a line that has only who is about to end", plain(), HELD,
        {L_PARKED: shelf(t1=entry(verdict="gave_up"))}, BOTH, PLAIN_KEYS),
    Row("done, while the further one is another's", claim(), ["done", "done", "5", "1"],
        {"L": OTHER, RECORD: record("done", result="5")}),
    Row("in doubt only when all could be had", claim(after_crash="hold"),
        ["busy", r"\d+", ".+", "0", "-1", "0", "1"], {"L": OTHER, RECORD: record("running")}),
    Row("in doubt", claim(after_crash="hold"), ["in_doubt", "1"],
        {RECORD: record("running")}),
    # sent again
    Row("sent again: the same fences, TTLs anew", plain(), ["held", "7", "1", "7"],
        {"K": lock(px=9), "L": lock(px=9)}, AGAIN, PLAIN_KEYS),
    Row("sent again: the record stays", claim(), ["held", "7", "3", "7"],
        {"K": lock(), "L": lock(), RECORD: record("running", token=A, attempt="3")}, AGAIN),
    Row("sent again, the further one has gone and is free", plain(), ["held", "7", "1", r"\d{16}"],
        {"K": lock()}, {**BOTH, "K": lock_after(30_000, "7"), FENCE: None}, PLAIN_KEYS),
    Row("sent again, the first has gone and is free", plain(), ["held", r"\d{16}", "1", "7"],
        {"L": lock()}, {**TAKEN, "L": lock_after(30_000, "7")}, PLAIN_KEYS),
    Row("sent again, the further one is another's by now: none", plain(),
        ["busy", r"\d+", ".+", "0", "-1", "0", "1"], {"K": lock(), "L": OTHER}, {"K": None},
        PLAIN_KEYS),
    Row("sent again, the first is another's by now: none", plain(),
        ["busy", r"\d+", ".+", "0", "-1", "0"], {"K": OTHER, "L": lock()}, {"L": None}, PLAIN_KEYS),
    Row("sent again, others stand in the first line by now: none", plain(),
        ["queued", "1", "-1", "0"],
        {**K_JOBS, "L": lock()}, {"L": None},
        PLAIN_KEYS),
    Row("sent again, done by now: none", claim(), ["done", "done", "5", "1"],
        {"L": lock(), RECORD: record("done", result="5")}, {"L": None}),
    # errors
    Row("no place in line", plain(ticket="t1"), "GILIRAN a resource has", keys=PLAIN_KEYS),
    Row("a key too few", plain(), "GILIRAN a resource has", keys=PLAIN_KEYS[:-1]),
    Row("a record without its key", claim(), "GILIRAN a resource has", keys=PLAIN_KEYS),
    Row("a further fence of another type", claim(), "WRONGTYPE",
        {L_FENCE: Key({"x": "1"})}),
]  # fmt: skip


@pytest.mark.keys_without_ttl("K", "L", "*:line", "*:parked")
@each(CLAIMS)
def test_claim(backend: Backend, row: Row) -> None:
    check(backend, CLAIM, replace(row, keys=row.keys or CLAIM_KEYS))


HOLDS = {"K": lock(), "L": lock(), RECORD: record("running", token=A, fence="7")}
KEPT = {
    "state": "done", "fingerprint": "f", "token": A, "fence": "7", "attempt": "1", "started": "1",
    "result": "5", "finished": r"\d{13}",
}  # fmt: skip
GONE: dict[str, Key | None] = {"K": None, "L": None}
FINISHES = [
    Row("done", finish("done"), ["done", "", NOBODY, NOBODY], HOLDS,
        {**GONE, RECORD: Key(KEPT, 90_000)}),
    Row("release, without a record", finish(), ["done", "", NOBODY, NOBODY],
        {"K": lock(), "L": lock()}, GONE, PLAIN_ENDS),
    Row("forget", finish("forget"), ["done", "", NOBODY, NOBODY], HOLDS,
        {**GONE, RECORD: None}),
    *(Row(f"{ending}: the further one is gone", finish(ending),
          ["lost", "expired", NOBODY], {"K": lock(), RECORD: HOLDS[RECORD]})
      for ending in ("done", "failed", "forget", "release")),
    Row("done: the further one is another's", finish("done"), ["lost", "taken", NOBODY],
        {**HOLDS, "L": OTHER}),
    Row("done: the first is gone", finish("done"), ["lost", "expired", NOBODY],
        {"L": lock()}),
    Row("done: was applied", finish("done", "1"), ["done", "", NOBODY, NOBODY],
        {RECORD: record("done", token=A, result="5")}),
    Row("release, sent again: was applied", finish("release", "1"),
        ["released", "", NOBODY, NOBODY], keys=PLAIN_ENDS),
    Row("release, sent again: what is ours goes", finish("release", "1"),
        ["released", "", NOBODY, NOBODY], {"K": OTHER, "L": lock()}, {"L": None}, PLAIN_ENDS),
    Row("forget, sent again: the record of a lost first one stays", finish("forget", "1"),
        ["released", "", NOBODY, NOBODY], {"L": lock(), RECORD: HOLDS[RECORD]},
        {"L": None}),
    Row("each line has its turn", finish(),
        ["done", "", called("wait", "w", route=""), T1],
        {"K": lock(), "L": lock(), LINE: ranks(w=10), PARKED: shelf(w=waiter()),
         **L_JOBS},
        {"K": reserved_after("w", 1_000), "L": reserved_after("t1"),
         PARKED: shelf(w=entry_after("wait", called=1, route="")),
         f"{PARKED}:w": Key(["1"], 1_000),
         L_PARKED: shelf(t1=entry_after(called=1, by=A), t1_="P1")}, PLAIN_ENDS),
    Row("sent again: who was called is told again", finish("release", "1"),
        ["released", "", NOBODY, T1], {"L": reserved("t1", A), **L_JOBS}, keys=PLAIN_ENDS),
    # the lease of one fence
    Row("the fence is the lease's", (*finish("release", "1"), "7"), ["done", "", NOBODY],
        {"K": lock()}, {"K": None}, KEYS["finish"][:-1]),
    Row("the fence is an earlier one's", (*finish("release", "1"), "6"), ["released", "", NOBODY],
        {"K": lock()}, keys=KEYS["finish"][:-1]),
    Row("the fence only begins like it", (*finish("release", "1"), ""), ["released", "", NOBODY],
        {"K": lock()}, keys=KEYS["finish"][:-1]),
]  # fmt: skip


@pytest.mark.keys_without_ttl("*:line", "*:parked")
@each(FINISHES)
def test_finish(backend: Backend, row: Row) -> None:
    check(backend, FINISH, replace(row, keys=row.keys or FINISH_KEYS))


SAME = r"a{32};v=1;fence=7;acquired=\d+;ttl=.*"
RENEWS = [
    Row("both are renewed", (A, "30000"), [], {"K": lock(px=500), "L": lock(px=600)},
        {"K": Key(SAME, 30_000), "L": Key(SAME, 30_000)}),
    Row("the further one is gone: none", (A, "30000"), ["0"], {"K": lock()}),
    Row("the further one is another's: none", (A, "30000"), ["-1"], {"K": lock(), "L": lock(B)}),
    Row("the first is another's: none", (A, "30000"), ["-1"], {"K": lock(B), "L": lock()}),
    Row("max_hold of the further one is over: none", (A, "30000"), ["-2"],
        {"K": lock(), "L": lock(acquired="@-60000")}),
    Row("a hash: none", (A, "30000"), ["-1"], {"K": lock(), "L": Key({"x": "1"})}),
]  # fmt: skip


@each(RENEWS)
def test_renew(backend: Backend, row: Row) -> None:
    check(backend, RENEW, replace(row, keys=("K", "L")))


def test_out_of_memory_refuses_a_claim_whole(own_backend: Backend) -> None:
    own_backend.fill_up()
    check(own_backend, CLAIM, Row("", plain(), "OOM", keys=PLAIN_KEYS))


def test_renewal_and_release_work_out_of_memory(own_backend: Backend) -> None:
    give_all(own_backend, {"K": lock(px=5_000), "L": lock(px=5_000)})
    own_backend.fill_up()
    renewed = {"K": Key(SAME, 30_000), "L": Key(SAME, 30_000)}
    check(own_backend, RENEW, Row("", (A, "30000"), [], after=renewed, keys=("K", "L")))
    released = Row("", finish(), ["done", "", NOBODY, NOBODY], {}, GONE, PLAIN_ENDS)
    check(own_backend, FINISH, released)
