from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.scripts.backends import DUE, LINE, PARKED, Key, OnFake, Row, check, each, give_all
from tests.scripts.words import (
    FOREIGN,
    HELD,
    A,
    B,
    entry,
    entry_after,
    park,
    ranks,
    record,
    reserved,
    shelf,
    waiter,
)  # fmt: skip

from giliran.scripts import PARK

if TYPE_CHECKING:
    from tests.scripts.backends import Backend

ENDS = 9_000_000_000_000
RANK, NOW_US = r"\d{16}", r"\d{16}"
PLACE = ["parked", "0", RANK]
ALONE = {
    LINE: Key({"t1": NOW_US}, None),
    PARKED: shelf(t1=entry_after(), t1_="P1"),
    DUE: ranks(t1=ENDS),
}
THERE = {
    LINE: ranks(t1=10), PARKED: shelf(t1=entry(), t1_="P1"), DUE: ranks(t1=ENDS),
}  # fmt: skip
BEHIND = {LINE: ranks(t9=10), PARKED: shelf(t9=entry(), t9_="P9"), DUE: ranks(t9=ENDS)}
BOTH = shelf(t9=entry_after(), t9_="P9", t1=entry_after(), t1_="P1")
DUES = ranks(t1=ENDS, t9=ENDS)
SUPERSEDED = Key({"state": "superseded", "fingerprint": "", "attempt": "1"}, 3_600_000)
GROUPED = {
    LINE: ranks(t0=5, t9=10), DUE: ranks(t0=ENDS, t9=ENDS),
    PARKED: shelf(t0=entry(), t0_="P0", t9=entry(group="g"), t9_="P9", _g="t9"),
}  # fmt: skip
GROUPED_AFTER = {
    LINE: ranks(t0=5, t1=10),
    PARKED: shelf(t0=entry_after(), t0_="P0", t1=entry_after(group="g"), t1_="P1", _g="t1",
        t9=entry_after(called=1, by=A, verdict="superseded", group="g"), t9_="P9"),
    DUE: Key({"t0": str(ENDS), "t1": str(ENDS), "t9": r"1\d{12}"}, None),
    "{K}:delivered:t9": SUPERSEDED,
}  # fmt: skip
ODD = "a%2F.:@-_~{}\n é" + "x" * 200

ROWS = [
    Row("held: it stands alone", park(), PLACE, HELD, ALONE),
    Row("held: it stands behind", park(), ["parked", "1", RANK], {**HELD, **BEHIND},
        {LINE: Key({"t9": "10", "t1": NOW_US}, None), PARKED: BOTH, DUE: DUES}),
    Row("ranks rise though the clock went back", park(), ["parked", "1", "9000000000000001"],
        {**HELD, **BEHIND, LINE: ranks(t9=9e15)},
        {LINE: ranks(t9=9e15, t1=9e15 + 1), PARKED: BOTH, DUE: DUES}),
    Row("at its old rank", park(rank="7"), ["parked", "0", "7"], {**HELD, **BEHIND},
        {LINE: ranks(t1=7, t9=10), PARKED: BOTH, DUE: DUES}),
    Row("the better of the rank it has and the one it had: that", park(rank="7"),
        ["parked", "0", "7"], {**HELD, **THERE},
        {LINE: ranks(t1=7), PARKED: shelf(t1=entry_after(), t1_="P1")}),
    Row("the better of the rank it has and the one it had: this", park(rank="12"),
        ["parked", "0", "10"], {**HELD, **THERE}, {PARKED: shelf(t1=entry_after(), t1_="P1")}),
    Row("again: the newest payload and deadline", park(payload="Q", ends="8000000000000"),
        ["parked", "0", "10"], {**HELD, **THERE},
        {PARKED: shelf(t1=entry_after(), t1_="Q"), DUE: ranks(t1=8e12)}),
    Row("called before: an old caller does not answer for it any more", park(),
        ["parked", "0", "10"],
        {**HELD, **THERE, PARKED: shelf(t1=entry(called=4, by=B), t1_="P1")},
        {PARKED: shelf(t1=entry_after(), t1_="P1")}),
    Row("about to end: it ends", park(rank="3"), ["parked", "-1", "3"],
        {**HELD, PARKED: shelf(t1=entry(called=1, by=B, verdict="gave_up"), t1_="P1")}),
    Row("a line of waiters has no end from now on", park(), ["parked", "1", RANK],
        {**HELD, LINE: ranks(9_000, w=5), PARKED: shelf(9_000, w=waiter())},
        {LINE: Key({"w": "5", "t1": NOW_US}, None), DUE: ranks(t1=ENDS),
         PARKED: shelf(w=r"wait.*", t1=entry_after(), t1_="P1")}),
    # the lock
    Row("free", park(), ["free"]),
    Row("free and first", park(), ["free"], THERE),
    Row("free and here before the first", park(rank="9"), ["free"], BEHIND),
    Row("free, and as early as the first", park(rank="10"), ["free"], BEHIND),
    Row("free, but not first", park(rank="11"), ["parked", "1", "11"], BEHIND,
        {LINE: ranks(t9=10, t1=11), PARKED: BOTH, DUE: DUES}),
    Row("reserved for it", park(), ["free"], {"K": reserved("t1")}),
    Row("reserved for it, and still parked", park(payload="Q"), ["free"],
        {"K": reserved("t1"), **THERE}),
    Row("reserved for another", park(), PLACE, {"K": reserved("t9")}, ALONE),
    Row("reserved for one whose name begins alike", park(), PLACE, {"K": reserved("t11")}, ALONE),
    Row("a foreign value without TTL", park(), PLACE, {"K": Key(FOREIGN, None)}, ALONE),
    Row("a foreign value like ours", park(), PLACE, {"K": Key("reserved;pub=t1")}, ALONE),
    Row("a hash", park(), PLACE, {"K": Key({"x": "1"})}, ALONE),
    # caps
    Row("full", park(most="1"), ["full"], {**HELD, **BEHIND}),
    Row("full of waiters and jobs", park(most="1"), ["full"],
        {**HELD, PARKED: shelf(t8=waiter(), t9=waiter())}),
    Row("full, but it stands there", park(most="1"), ["parked", "0", "10"], {**HELD, **THERE},
        {PARKED: shelf(t1=entry_after(), t1_="P1")}),
    Row("full, but it stood there", park(most="1", rank="11"), ["parked", "1", "11"],
        {**HELD, **BEHIND}, {LINE: ranks(t9=10, t1=11), PARKED: BOTH, DUE: DUES}),
    Row("room for one more", park(most="2"), ["parked", "1", RANK], {**HELD, **BEHIND},
        {LINE: Key({"t9": "10", "t1": NOW_US}, None), PARKED: BOTH, DUE: DUES}),
    # groups
    Row("superseded since it claimed: it has ended", park(rank="3", group="g"),
        ["parked", "-1", "3"], {**HELD, "{K}:delivered:t1": SUPERSEDED}),
    Row("the first of its group", park(group="g"), PLACE, HELD,
        {**ALONE, PARKED: shelf(t1=entry_after(group="g"), t1_="P1", _g="t1")}),
    Row("the newest takes the place of the one that waits", park(group="g"),
        ["parked", "1", "10", "t9", "a", "P9"], {**HELD, **GROUPED}, GROUPED_AFTER),
    Row("again: the older one is not told again", park(group="g"), ["parked", "0", "10"],
        {**HELD, LINE: ranks(t1=10), DUE: ranks(t1=ENDS, t9=ENDS),
         PARKED: shelf(t1=entry(group="g"), t1_="P1", _g="t1",
            t9=entry(called=1, by=A, verdict="superseded", group="g"), t9_="P9")},
        {PARKED: shelf(t1=entry_after(group="g"), t1_="P1", _g="t1",
            t9=entry_after(called=1, by=A, verdict="superseded", group="g"), t9_="P9")}),
    Row("one that was called waits no more", park(group="g"), ["parked", "1", RANK],
        {**HELD, **BEHIND,
         PARKED: shelf(t9=entry(called=1, by=B, group="g"), t9_="P9", _g="t9")},
        {LINE: Key({"t9": "10", "t1": NOW_US}, None), DUE: DUES,
         PARKED: shelf(t9=entry_after(called=1, by=B, group="g"), t9_="P9",
            t1=entry_after(group="g"), t1_="P1", _g="t1")}),
    Row("one whose call was refused was called", park(group="g"), ["parked", "1", RANK],
        {**HELD, **BEHIND,
         PARKED: shelf(t9=entry(called=0, by=B, group="g"), t9_="P9", _g="t9")},
        {LINE: Key({"t9": "10", "t1": NOW_US}, None), DUE: DUES,
         PARKED: shelf(t9=entry_after(called=0, by=B, group="g"), t9_="P9",
            t1=entry_after(group="g"), t1_="P1", _g="t1")}),
    Row("called and parked again: the one that waits since then is newer",
        park(rank="3", group="g"), ["parked", "0", "3", "t1", "a", "P1"],
        {**HELD, **BEHIND, PARKED: shelf(t9=entry(group="g"), t9_="P9", _g="t9")},
        {LINE: ranks(t9=3), DUE: Key({"t9": str(ENDS), "t1": r"1\d{12}"}, None),
         PARKED: shelf(t9=entry_after(group="g"), t9_="P9", _g="t9",
            t1=entry_after(called=1, by=A, verdict="superseded", group="g"), t1_="P1"),
         "{K}:delivered:t1": SUPERSEDED}),
    Row("one that is superseded after it ended keeps its record", park(group="g"),
        ["parked", "1", "10", "t9", "a", "P9"],
        {**HELD, **GROUPED, "{K}:delivered:t9": record("done")},
        {key: at for key, at in GROUPED_AFTER.items() if key != "{K}:delivered:t9"}),
    Row("a group whose job has gone", park(group="g"), PLACE,
        {**HELD, PARKED: shelf(_g="t9")},
        {**ALONE, PARKED: shelf(t1=entry_after(group="g"), t1_="P1", _g="t1")}),
    Row("another group is left alone", park(group="h"), ["parked", "2", RANK],
        {**HELD, **GROUPED},
        {LINE: Key({"t0": "5", "t9": "10", "t1": NOW_US}, None),
         DUE: ranks(t0=ENDS, t9=ENDS, t1=ENDS),
         PARKED: shelf(t0=entry_after(), t0_="P0", t9=entry_after(group="g"), t9_="P9",
            _g="t9", t1=entry_after(group="h"), t1_="P1", _h="t1")}),
    # what it carries
    *(Row(f"payload {payload[:9]!r}", park(payload=payload), PLACE, HELD,
          {**ALONE, PARKED: shelf(t1=entry_after(), t1_=f"(?s:.{{{len(payload)}}})")})
      for payload in ("", "\n\r\n", "\x00|;=\x00", "é☃\U0001f600", "x" * 1_000_000)),
    Row("every character a ticket may have", park(ticket=ODD), PLACE, HELD,
        {LINE: Key({ODD: NOW_US}, None), DUE: ranks(**{ODD: ENDS}),
         PARKED: Key({f"={ODD}": entry_after(), f"+{ODD}": "P1"}, None)}),
    Row("every character a route and a group may have",
        park(route="celery:q\n=é;", group="/=+;"), PLACE, HELD,
        {**ALONE, PARKED: Key({
            "=t1": entry_after(group=r"/=\+;", route="celery:q\n=é;"), "+t1": "P1", "//=+;": "t1",
        }, None)}),
    # errors write nothing
    *(Row(f"ticket {t!r}", park(ticket=t), "GILIRAN ticket", HELD) for t in ("", "a|b", "a;b")),
    Row("a group with a separator", park(group="g|h"), "GILIRAN ticket", HELD),
    Row("a route with a separator", park(route="a|b"), "GILIRAN ticket", HELD),
    *(Row(f"ends {n!r}", park(ends=n), "GILIRAN ends", HELD)
      for n in ("", "x", "nan", "-nan", "inf", "0", "-1", "1.5", "1e18")),
    *(Row(f"most {n!r}", park(most=n), "GILIRAN ends", HELD) for n in ("", "0", "nan", "0.5")),
    *(Row(f"rank {n!r}", park(rank=n), "GILIRAN ends", HELD)
      for n in ("x", "nan", "inf", "-1", "1.5", "1e18")),
    *(Row(f"retain {n!r}", park(retain=n), "GILIRAN retain", HELD)
      for n in ("", "999", "nan", "0.5")),
    *(Row(f"token {t!r}", park(token=t), "GILIRAN token", HELD) for t in ("", "a" * 31, "g" * 32)),
    Row("a line of another type", park(), "WRONGTYPE", {**HELD, LINE: Key("x")}),
    Row("parked of another type", park(), "WRONGTYPE", {**HELD, PARKED: Key("x")}),
]  # fmt: skip


@each(ROWS)
def test_park(backend: Backend, row: Row) -> None:
    check(backend, PARK, row)


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.name) for row in ROWS if row.reply[0] == "parked"]
)
def test_a_repeat_gives_the_same_place_and_changes_nothing(row: Row) -> None:
    backend = OnFake()
    give_all(backend, row.given)
    first, state = backend.run(PARK, row.args), backend.dump()
    backend.redis.us += 1_000_000
    again = backend.run(PARK, row.args)
    if "t1" in first[4:]:  # The older of its group: it is about to end.
        assert again[1:3] == ["parked", -1]
    else:
        assert again[1:4] == first[1:4]
    backend.redis.us -= 1_000_000
    assert backend.dump() == state


def test_due_of_another_type_leaves_only_a_place_that_is_passed_over(backend: Backend) -> None:
    given = {**HELD, DUE: Key("x")}
    after = {LINE: Key({"t1": NOW_US}, None)}
    check(backend, PARK, Row("", park(), "WRONGTYPE", given, after))


@pytest.mark.parametrize("args", [park(), park(group="g")], ids=["plain", "group"])
def test_out_of_memory_refuses_a_park_whole(own_backend: Backend, args: tuple[str, ...]) -> None:
    give_all(own_backend, {**HELD, **GROUPED})
    own_backend.fill_up()
    check(own_backend, PARK, Row("", args, "OOM"))


def test_durable_asks_for_an_append_only_file(backend: Backend) -> None:
    if isinstance(backend, OnFake):
        pytest.skip("the fake is durable")
    check(backend, PARK, Row("", park(durable="1"), "NOTDURABLE", HELD))
