from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.scripts.backends import FENCE, KEYS, RECORD, Key, Row, check, each, give_all
from tests.scripts.words import (
    CLAIMED,
    FENCE_LIFE,
    FOREIGN,
    HELD,
    OTHERS,
    TAIL,
    TAKEN,
    A,
    B,
    claim,
    lock,
    lock_after,
    plain,
    record,
    running_after,
)  # fmt: skip

from giliran.scripts import CLAIM

if TYPE_CHECKING:
    from tests.scripts.backends import Backend

PLAIN_KEYS = KEYS["claim"][:-1]
ALONE = ("0", "-1", "0")  # in line
RECORDED = {**TAKEN, RECORD: running_after(1)}
OURS_AGAIN = {"K": lock_after(30_000, "7")}

ROWS = [
    Row("free, with a record", claim(), CLAIMED, after=RECORDED),
    Row("free, without a record", plain(), CLAIMED, after=TAKEN, keys=PLAIN_KEYS),
    Row("free, a delivery is only read", claim(kind="delivery"), CLAIMED, after=TAKEN),
    Row("the first TTL is capped by max_hold", plain(ttl="30000", max_hold="10000"), CLAIMED,
        after={"K": lock_after(10_000), FENCE: Key(r"\d{16}", 86_410_000)}),
    Row("fence rises above the last one", plain(), ["held", "9000000000000000", "1"],
        {FENCE: Key("8999999999999999")},
        {"K": lock_after(30_000), FENCE: Key("9000000000000000", FENCE_LIFE)}),
    Row("fence is floored by server time", plain(), CLAIMED, {FENCE: Key("12")}, TAKEN),
    Row("fence that is no number is replaced", plain(), CLAIMED, {FENCE: Key("x")}, TAKEN),
    Row("same token: same fence, TTL anew", plain(), ["held", "7", "1"], {"K": lock(px=9)},
        OURS_AGAIN),
    Row("same token keeps its record's attempt", claim(), ["held", "7", "3"],
        {"K": lock(), RECORD: record("running", token=A, attempt="3")}, OURS_AGAIN),
    Row("ours already: its record is written now", claim(), ["held", "7", "1"], {"K": lock()},
        {**OURS_AGAIN, RECORD: running_after(1, fence="7")}),
    Row("ours already: a crashed attempt is counted now", claim(), ["held", "7", "3"],
        {"K": lock(), RECORD: record("running", attempt="2")},
        {**OURS_AGAIN, RECORD: running_after(3, fence="7")}),
    Row("same token near max_hold starts anew, as its sender counts", plain(),
        ["held", "7", "1"], {"K": lock(acquired="@-59000")}, OURS_AGAIN),
    Row("same token, the lock has gone: a new fence, no attempt spent", claim(attempts="1"),
        CLAIMED, {RECORD: record("running", token=A)}, RECORDED),
    Row("held by another", claim(),
        ["busy", r"[12]\d{4}", "v=1;fence=7;acquired=.*pub=p2;.*", *ALONE], HELD),
    Row("held by this very publication", claim(),
        ["duplicate", r"[12]\d{4}", "v=1;.*pub=p1;.*", *ALONE], {"K": lock(B)}),
    Row("held by the elder this is a retry of", claim(publication="p3", elder="p1"),
        ["elder", r"[12]\d{4}", "v=1;.*pub=p1;.*", *ALONE], {"K": lock(B)}),
    Row("held by another than the elder", claim(publication="p3", elder="p1"),
        ["busy", r"[12]\d{4}", "v=1;.*pub=p2;.*", *ALONE], HELD),
    Row("publications that start alike differ", claim(publication="p"),
        ["busy", r"\d+", ".+", *ALONE], {"K": lock(B)}),
    Row("no publication is no publication", claim(publication=""), ["busy", r"\d+", ".+", *ALONE],
        {"K": lock(B, TAIL.replace("pub=p1", "pub="))}),
    Row("a lock without an end is busy without an end", claim(), ["busy", "-1", "v=1;.*", *ALONE],
        {"K": lock(B, OTHERS, px=None)}),
    Row("a foreign value is busy and tells nothing", claim(), ["busy", r"\d+", "", *ALONE],
        {"K": Key(FOREIGN)}),
    Row("a foreign value that is our token is busy", claim(), ["busy", r"\d+", "", *ALONE],
        {"K": Key(A)}),
    Row("an empty value is busy", claim(), ["busy", r"\d+", "", *ALONE], {"K": Key("")}),
    Row("a hash is no lock", claim(), ["wrongtype", "hash"], {"K": Key({"x": "1"})}),
    Row("a crashed attempt is followed by the next", claim(), ["held", r"\d{16}", "2"],
        {RECORD: record("running")}, {**RECORDED, RECORD: running_after(2)}),
    Row("a crashed attempt is in doubt if so wished", claim(after_crash="hold"),
        ["in_doubt", "1"], {RECORD: record("running")}),
    Row("as many attempts as allowed", claim(attempts="3"), ["gave_up", "3"],
        {RECORD: record("running", attempt="3")}),
    Row("a crashed attempt behind a held lock is busy", claim(attempts="1"),
        ["busy", r"\d+", ".+", *ALONE], {**HELD, RECORD: record("running")}),
    Row("done", claim(), ["done", "done", "5", "1"], {RECORD: record("done", result="5")}),
    Row("done without a result", claim(), ["done", "done", "", "1"],
        {RECORD: record("done")}),
    Row("failed", claim(), ["done", "failed", "E", "2"],
        {RECORD: record("failed", result="E", attempt="2")}),
    Row("done while another job holds", claim(), ["done", "done", "5", "1"],
        {**HELD, RECORD: record("done", result="5")}),
    Row("a delivery that is done", claim(kind="delivery", fingerprint=""),
        ["done", "done", "5", "0"],
        {RECORD: Key({"state": "done", "fingerprint": "", "token": B, "result": "5"})}),
    Row("another fingerprint, done", claim(fingerprint="g"), ["mismatch"],
        {RECORD: record("done", result="5")}),
    Row("another fingerprint, running", claim(fingerprint="g"), ["mismatch"],
        {**HELD, RECORD: record("running")}),
]  # fmt: skip

ERRORS = [
    *(Row(f"token {token!r}", claim(token), "GILIRAN token")
      for token in ("", "a" * 31, "a" * 33, "g" * 32, "a" * 31 + ";")),
    *(Row(f"ttl {n!r}", claim(ttl=n), "GILIRAN ttl_ms")
      for n in ("", "x", "nan", "-nan", "inf", "-1", "0", "999", "1000.5", "86400001")),
    *(Row(f"max_hold {n!r}", claim(max_hold=n), "GILIRAN max_hold_ms")
      for n in ("", "nan", "0", "999", "1000.5", "604800001")),
    *(Row(f"record_ms {n!r}", claim(record_ms=n), "GILIRAN record_ms")
      for n in ("", "nan", "999", "1000.5", "1e18")),
    *(Row(f"attempts {n!r}", claim(attempts=n), "GILIRAN record_ms")
      for n in ("", "0", "0.5", "nan", "1e18")),
    Row("a fence of another type", claim(), "WRONGTYPE", {FENCE: Key({"x": "1"})}),
    Row("a record of another type", claim(), "WRONGTYPE", {RECORD: Key("x")}),
    Row("a record without its key", claim(), "", keys=PLAIN_KEYS),
]  # fmt: skip


@pytest.mark.keys_without_ttl("K")
@each([*ROWS, *ERRORS])
def test_claim(backend: Backend, row: Row) -> None:
    check(backend, CLAIM, row)


def test_an_error_leaves_a_held_lock_alone(backend: Backend) -> None:
    given = {"K": lock(), FENCE: Key("7"), RECORD: record("running", token=A)}
    for row in ERRORS[:-3]:
        backend.flush()
        check(backend, CLAIM, Row(row.name, row.args, row.reply, given))


def fence_of(backend: Backend) -> int:
    reply = backend.run(CLAIM, plain())
    assert reply[1] == "held"
    return int(reply[2])


def test_fence_rises_after_the_lock_or_everything_was_lost(backend: Backend) -> None:
    first = fence_of(backend)
    backend.remove("K")
    second = fence_of(backend)
    backend.flush()
    third = fence_of(backend)
    assert first < second < third


def test_everything_a_claim_writes_has_an_end(backend: Backend) -> None:
    backend.run(CLAIM, claim())
    assert [key for key, found in backend.dump().items() if found.px is None] == []
    assert len(backend.dump()) == 3


def test_out_of_memory_refuses_a_claim_whole(own_backend: Backend) -> None:
    own_backend.fill_up()
    check(own_backend, CLAIM, Row("", claim(), "OOM"))


def test_out_of_memory_refuses_a_second_send_and_leaves_the_lease(own_backend: Backend) -> None:
    give_all(own_backend, {"K": lock()})
    own_backend.fill_up()
    check(own_backend, CLAIM, Row("", plain(), "OOM"))
