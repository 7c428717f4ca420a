from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.scripts.backends import KEYS, RECORD, Key, Row, check, each, give_all
from tests.scripts.words import FOREIGN, NOBODY, OTHERS, A, B, finish, lock, record

from giliran.scripts import FINISH

if TYPE_CHECKING:
    from tests.scripts.backends import Backend

PLAIN_KEYS = KEYS["finish"][:-1]
RUNNING = record("running", token=A, fence="7")
HOLDS = {"K": lock(), RECORD: RUNNING}
TAKEN = {"K": lock(B, OTHERS), RECORD: RUNNING}
GONE = {RECORD: RUNNING}
KEPT = {
    "state": "done", "fingerprint": "f", "token": A, "fence": "7", "attempt": "1", "started": "1",
    "result": "5", "finished": r"\d{13}",
}  # fmt: skip
NOTED = {RECORD: record("done", token=A, result="5")}
FAILED = {RECORD: record("failed", token=A, result="E")}
DONE, RELEASED, EXPIRED, LOST = (
    ["done", "", NOBODY],
    ["released", "", NOBODY],
    ["lost", "expired", NOBODY],
    ["lost", "taken", NOBODY],
)

ROWS = [
    # ours
    Row("done", finish("done"), DONE, HOLDS, {"K": None, RECORD: Key(KEPT, 90_000)}),
    Row("done, sent again though ours", finish("done", "1"), DONE, HOLDS,
        {"K": None, RECORD: Key(KEPT, 90_000)}),
    Row("failed", finish("failed"), DONE, HOLDS,
        {"K": None, RECORD: Key({**KEPT, "state": "failed"}, 90_000)}),
    Row("done, its running record was lost", finish("done"), DONE, {"K": lock()},
        {"K": None, RECORD: Key(
            {k: v for k, v in KEPT.items() if k not in ("attempt", "started")}, 90_000)}),
    Row("forget", finish("forget"), DONE, HOLDS, {"K": None, RECORD: None}),
    Row("forget leaves another's record", finish("forget"), DONE,
        {"K": lock(), RECORD: record("running")}, {"K": None}),
    Row("forget leaves a finished record", finish("forget"), DONE,
        {"K": lock(), **NOTED}, {"K": None}),
    Row("release", finish(), DONE, HOLDS, {"K": None}),
    Row("release without a record", finish(retain=""), DONE, {"K": lock()}, {"K": None},
        PLAIN_KEYS),
    Row("forget without a record", finish("forget"), DONE, {"K": lock()}, {"K": None}, PLAIN_KEYS),
    Row("a lock without TTL is released too", finish(), DONE, {"K": lock(px=None)}, {"K": None}),
    # not ours, first send
    *(Row(f"{ending}: gone", finish(ending), EXPIRED, GONE)
      for ending in ("done", "failed", "forget", "release")),
    *(Row(f"{ending}: another's", finish(ending), LOST, TAKEN)
      for ending in ("done", "failed", "forget", "release")),
    Row("a foreign value", finish(), LOST, {"K": Key(FOREIGN)}),
    Row("a foreign value that is our token", finish(), LOST, {"K": Key(A)}),
    Row("a hash", finish(), LOST, {"K": Key({"x": "1"})}),
    # not ours, sent again
    Row("done: was applied", finish("done", "1"), DONE, NOTED),
    Row("done: was applied, and another holds now", finish("done", "1"), DONE,
        {"K": lock(B, OTHERS), **NOTED}),
    Row("failed: was applied", finish("failed", "1"), DONE, FAILED),
    Row("done: was applied, doubled on the way", finish("done"), DONE, NOTED),
    Row("done: the record is another's", finish("done", "1"), EXPIRED,
        {RECORD: record("done")}),
    Row("done: ours says failed", finish("done", "1"), EXPIRED, FAILED),
    Row("done: never applied, gone", finish("done", "1"), EXPIRED, GONE),
    Row("failed: never applied, another's", finish("failed", "1"), LOST, TAKEN),
    Row("release: gone", finish("release", "1"), RELEASED, GONE),
    Row("release: another's", finish("release", "1"), RELEASED, TAKEN),
    Row("forget: gone", finish("forget", "1"), RELEASED, GONE),
    Row("forget: another's", finish("forget", "1"), RELEASED, TAKEN),
    # errors write nothing
    *(Row(f"token {token!r}", finish(token=token), "GILIRAN token", HOLDS)
      for token in ("", "a" * 31, "a" * 33, "g" * 32)),
    *(Row(f"retain {n!r}", finish("done", retain=n), "GILIRAN a record", HOLDS)
      for n in ("", "x", "nan", "inf", "0", "999", "1000.5", "1e18", "99999999999999999999")),
    Row("ending", finish("gone"), "GILIRAN ending", HOLDS),
    Row("done without a record's key", finish("done"), "GILIRAN a record", {"K": lock()},
        keys=PLAIN_KEYS),
    Row("a record of another type", finish("done"), "WRONGTYPE",
        {"K": lock(), RECORD: Key("x")}),
]  # fmt: skip


@each(ROWS)
def test_finish(backend: Backend, row: Row) -> None:
    check(backend, FINISH, row)


@pytest.fixture
def full(own_backend: Backend) -> Backend:
    """A store out of memory in which A holds K."""
    give_all(own_backend, HOLDS)
    own_backend.fill_up()
    return own_backend


@each([
    Row("release", finish(), DONE, after={"K": None}),
    Row("forget", finish("forget"), DONE, after={"K": None, RECORD: None}),
    Row("done is refused whole", finish("done"), "OOM"),
    Row("failed is refused whole", finish("failed"), "OOM"),
])  # fmt: skip
def test_finish_out_of_memory(full: Backend, row: Row) -> None:
    check(full, FINISH, row)
