from __future__ import annotations

from typing import TYPE_CHECKING

from tests.scripts.backends import Key, Row, check, each, give_all
from tests.scripts.words import FOREIGN, A, B, lock

from giliran.scripts import RENEW

if TYPE_CHECKING:
    from tests.scripts.backends import Backend

SAME = r"a{32};v=1;fence=7;acquired=\d+;ttl=.*"
RENEWED: list[str] = []
ROWS = [
    Row("ours: the TTL is set anew", (A, "30000"), RENEWED, {"K": lock(px=500)},
        {"K": Key(SAME, 30_000)}),
    Row("a TTL can be shortened", (A, "10000"), RENEWED, {"K": lock()}, {"K": Key(SAME, 10_000)}),
    Row("a lock that lost its TTL gets one", (A, "30000"), RENEWED, {"K": lock(px=None)},
        {"K": Key(SAME, 30_000)}),
    Row("near max_hold the TTL is capped", (A, "30000"), RENEWED, {"K": lock(acquired="@-50000")},
        {"K": Key(SAME, 10_000)}),
    Row("max_hold is over", (A, "30000"), ["-2"], {"K": lock(acquired="@-60000")}),
    Row("max_hold is long over", (A, "30000"), ["-2"], {"K": lock(acquired="@-99000")}),
    Row("a gone lock is not made again", (A, "30000"), ["0"]),
    Row("another's", (A, "30000"), ["-1"], {"K": lock(B)}),
    Row("a foreign value", (A, "30000"), ["-1"], {"K": Key(FOREIGN)}),
    Row("a foreign value that is our token", (A, "30000"), ["-1"], {"K": Key(A)}),
    Row("a hash", (A, "30000"), ["-1"], {"K": Key({"x": "1"})}),
    *(Row(f"ttl {n!r}", (A, n), "GILIRAN ttl_ms", {"K": lock()})
      for n in ("", "x", "nan", "inf", "-1", "0", "999", "1000.5", "86400001")),
]  # fmt: skip


@each(ROWS)
def test_renew(backend: Backend, row: Row) -> None:
    check(backend, RENEW, row)


def test_renew_works_out_of_memory(own_backend: Backend) -> None:
    give_all(own_backend, {"K": lock(px=5_000)})
    own_backend.fill_up()
    check(own_backend, RENEW, Row("", (A, "30000"), RENEWED, after={"K": Key(SAME, 30_000)}))
