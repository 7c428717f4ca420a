from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.scripts.backends import Key, Row, at, check
from tests.scripts.words import (
    FENCE_LIFE,
    FOREIGN,
    OTHERS,
    TAIL,
    A,
    B,
    claim,
    lock,
    lock_after,
    record,
    running_after,
)  # fmt: skip

from giliran.store import CLAIM

if TYPE_CHECKING:
    from tests.scripts.backends import Backend

FENCE = Key(r"\d{16}", FENCE_LIFE)
TAKEN = {"K": lock_after(30_000), "{K}:fence": FENCE, "{K}:rec:i": running_after(1)}
PLAIN = {"K": lock_after(30_000), "{K}:fence": FENCE}
HELD = ["held", r"\d{16}", "1"]
RUNNING_A = Key({**running_after(1).value, "token": A, "fence": "7", "started": "1"})  # type: ignore[dict-item]
OURS_AGAIN = {"K": lock_after(30_000, "7")}

ROWS = [
    Row("free, with a record", claim(), HELD, after=TAKEN),
    Row("free, without a record", claim(kind=""), HELD, after=PLAIN, keys=("K", "{K}:fence")),
    Row("free, a delivery is only read", claim(kind="delivery"), HELD, after=PLAIN),
    Row("the first TTL is capped by max_hold", claim(kind="", ttl="30000", max_hold="10000"), HELD,
        after={"K": lock_after(10_000), "{K}:fence": Key(r"\d{16}", 86_410_000)}),
    Row("fence rises above the last one", claim(kind=""), ["held", "9000000000000000", "1"],
        {"{K}:fence": Key("8999999999999999")},
        {"K": lock_after(30_000), "{K}:fence": Key("9000000000000000", FENCE_LIFE)}),
    Row("fence is floored by server time", claim(kind=""), HELD, {"{K}:fence": Key("12")}, PLAIN),
    Row("fence that is no number is replaced", claim(kind=""), HELD, {"{K}:fence": Key("x")},
        PLAIN),
    Row("same token: same fence, TTL anew", claim(kind=""), ["held", "7", "1"], {"K": lock(px=9)},
        OURS_AGAIN),
    Row("same token keeps its record's attempt", claim(), ["held", "7", "3"],
        {"K": lock(), "{K}:rec:i": record("running", token=A, attempt="3")}, OURS_AGAIN),
    Row("same token near max_hold starts anew, as its sender counts", claim(kind=""),
        ["held", "7", "1"], {"K": lock(acquired="@-59000")}, OURS_AGAIN),
    Row("same token, the lock has gone: a new fence, no attempt spent", claim(attempts="1"), HELD,
        {"{K}:rec:i": record("running", token=A)}, TAKEN),
    Row("held by another", claim(), ["busy", r"[12]\d{4}", "v=1;fence=7;acquired=.*pub=p2;.*"],
        {"K": lock(B, OTHERS)}),
    Row("held by this very publication", claim(), ["duplicate", r"[12]\d{4}", "v=1;.*pub=p1;.*"],
        {"K": lock(B)}),
    Row("held by the elder this is a retry of", claim(publication="p3", elder="p1"),
        ["elder", r"[12]\d{4}", "v=1;.*pub=p1;.*"], {"K": lock(B)}),
    Row("held by another than the elder", claim(publication="p3", elder="p1"),
        ["busy", r"[12]\d{4}", "v=1;.*pub=p2;.*"], {"K": lock(B, OTHERS)}),
    Row("publications that start alike differ", claim(publication="p"), ["busy", r"\d+", ".+"],
        {"K": lock(B)}),
    Row("no publication is no publication", claim(publication=""), ["busy", r"\d+", ".+"],
        {"K": lock(B, TAIL.replace("pub=p1", "pub="))}),
    Row("a lock without an end is busy without an end", claim(), ["busy", "-1", "v=1;.*"],
        {"K": lock(B, OTHERS, px=None)}),
    Row("a foreign value is busy and tells nothing", claim(), ["busy", r"\d+", ""],
        {"K": Key(FOREIGN)}),
    Row("a foreign value that is our token is busy", claim(), ["busy", r"\d+", ""], {"K": Key(A)}),
    Row("an empty value is busy", claim(), ["busy", r"\d+", ""], {"K": Key("")}),
    Row("a hash is no lock", claim(), ["wrongtype", "hash"], {"K": Key({"x": "1"})}),
    Row("a crashed attempt is followed by the next", claim(), ["held", r"\d{16}", "2"],
        {"{K}:rec:i": record("running")}, {**TAKEN, "{K}:rec:i": running_after(2)}),
    Row("a crashed attempt is in doubt if so wished", claim(after_crash="hold"),
        ["in_doubt", "1"], {"{K}:rec:i": record("running")}),
    Row("as many attempts as allowed", claim(attempts="3"), ["gave_up", "3"],
        {"{K}:rec:i": record("running", attempt="3")}),
    Row("a crashed attempt behind a held lock is busy", claim(attempts="1"),
        ["busy", r"\d+", ".+"], {"K": lock(B, OTHERS), "{K}:rec:i": record("running")}),
    Row("done", claim(), ["done", "done", "5", "1"], {"{K}:rec:i": record("done", result="5")}),
    Row("done without a result", claim(), ["done", "done", "", "1"],
        {"{K}:rec:i": record("done")}),
    Row("failed", claim(), ["done", "failed", "E", "2"],
        {"{K}:rec:i": record("failed", result="E", attempt="2")}),
    Row("done while another job holds", claim(), ["done", "done", "5", "1"],
        {"K": lock(B, OTHERS), "{K}:rec:i": record("done", result="5")}),
    Row("a delivery that is done", claim(kind="delivery", fingerprint=""),
        ["done", "done", "5", "0"],
        {"{K}:rec:i": Key({"state": "done", "fingerprint": "", "token": B, "result": "5"})}),
    Row("another fingerprint, done", claim(fingerprint="g"), ["mismatch"],
        {"{K}:rec:i": record("done", result="5")}),
    Row("another fingerprint, running", claim(fingerprint="g"), ["mismatch"],
        {"K": lock(B, OTHERS), "{K}:rec:i": record("running")}),
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
    Row("a fence of another type", claim(), "WRONGTYPE", {"{K}:fence": Key({"x": "1"})}),
    Row("a record of another type", claim(), "WRONGTYPE", {"{K}:rec:i": Key("x")}),
    Row("a record without its key", claim(), "", keys=("K", "{K}:fence")),
]  # fmt: skip


@pytest.mark.keys_without_ttl("K")
@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in [*ROWS, *ERRORS]])
def test_claim(backend: Backend, row: Row) -> None:
    check(backend, CLAIM, row)


def test_an_error_leaves_a_held_lock_alone(backend: Backend) -> None:
    given = {"K": lock(), "{K}:fence": Key("7"), "{K}:rec:i": record("running", token=A)}
    for row in ERRORS[:-3]:
        backend.flush()
        check(backend, CLAIM, Row(row.name, row.args, row.reply, given))


def fence_of(backend: Backend) -> int:
    reply = backend.run(CLAIM, ("K", "{K}:fence"), claim(kind=""))
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
    backend.run(CLAIM, ("K", "{K}:fence", "{K}:rec:i"), claim())
    assert [key for key, found in backend.dump().items() if found.px is None] == []
    assert len(backend.dump()) == 3


def test_out_of_memory_refuses_a_claim_whole(own_backend: Backend) -> None:
    own_backend.fill_up()
    check(own_backend, CLAIM, Row("", claim(), "OOM"))


def test_out_of_memory_refuses_a_second_send_and_leaves_the_lease(own_backend: Backend) -> None:
    held = lock()
    own_backend.give("K", at(own_backend, held.value), held.px)
    own_backend.fill_up()
    check(own_backend, CLAIM, Row("", claim(kind=""), "OOM"))
