from __future__ import annotations

from typing import TYPE_CHECKING

from tests.scripts.backends import DEAD, DUE, KEYS, LINE, PARKED, Key, Row, check, each, give_all
from tests.scripts.words import A, B, dead, entry, entry_after, ranks, shelf

from giliran.scripts import OFFER

if TYPE_CHECKING:
    from tests.scripts.backends import Backend

TAKEN, REFUSED, AWAY = ("t1", A, "taken"), ("t1", A, "refused"), ("t1", A, "unreachable")
NOTED, NOT_OURS, SET_ASIDE = ["noted"], ["not ours"], ["dead"]

TOLD = A + "0"  # That caller has answered.


def called(by: str = A, times: int = 1) -> dict[str, Key]:
    """Give a job that was called, with another behind it."""
    return {
        LINE: ranks(t1=10, t2=20), DUE: ranks(t1=9e12, t2=9e12),
        PARKED: shelf(t1=entry(called=times, by=by), t1_="P1", t2=entry(), t2_="P2"),
    }  # fmt: skip


LEFT = {
    LINE: ranks(t2=20), DUE: ranks(t2=9e12), PARKED: shelf(t2=entry_after(), t2_="P2"),
}  # fmt: skip
LEFT_BEFORE = {
    LINE: ranks(t2=20), DUE: ranks(t2=9e12), PARKED: shelf(t2=entry(), t2_="P2"),
}  # fmt: skip
ROWS = [
    Row("the broker has it", TAKEN, NOTED, called(), LEFT),
    Row("the broker has it, and it was alone", TAKEN, NOTED,
        {LINE: ranks(t1=10), DUE: ranks(t1=9e12), PARKED: shelf(t1=entry(by=A), t1_="P1")},
        dict.fromkeys(KEYS["offer"])),
    Row("the broker has one that is to end", TAKEN, NOTED,
        {PARKED: shelf(t1=entry(called=1, by=A, verdict="superseded", group="g"), t1_="P1",
            t2=entry(group="g"), t2_="P2", _g="t2"), DUE: ranks(t1=1, t2=9e12)},
        {PARKED: shelf(t2=entry_after(group="g"), t2_="P2", _g="t2"), DUE: ranks(t2=9e12)}),
    Row("its group is free again", TAKEN, NOTED,
        {PARKED: shelf(t1=entry(called=1, by=A, group="g"), t1_="P1", _g="t1")},
        {PARKED: None}),
    Row("its group went on without it", TAKEN, NOTED,
        {PARKED: shelf(t1=entry(called=1, by=A, group="g"), t1_="P1", _g="t2")},
        {PARKED: shelf(_g="t2")}),
    Row("the broker does not answer: it counts as not called", AWAY, NOTED, called(times=3),
        {PARKED: shelf(t1=entry_after(called=2, by=TOLD), t1_="P1", t2=entry_after(), t2_="P2")}),
    Row("it cannot be published: that counts more than a call without an answer", REFUSED, NOTED,
        called(times=1),
        {PARKED: shelf(t1=entry_after(called=20, by=TOLD), t1_="P1", t2=entry_after(), t2_="P2")}),
    Row("four times refused, and called many times", REFUSED, NOTED, called(times=80),
        {PARKED: shelf(t1=entry_after(called=99, by=TOLD), t1_="P1", t2=entry_after(), t2_="P2")}),
    Row("five times refused: it is set aside", REFUSED, SET_ASIDE,
        {**called(times=81), DEAD: Key(["o"])}, {**LEFT, DEAD: dead(kept="o")}),
    Row("set aside by an earlier send", REFUSED, SET_ASIDE,
        {**LEFT_BEFORE, DEAD: Key(["t1|9||a|P1"])}),
    Row("another was set aside", REFUSED, NOT_OURS, {DEAD: Key(["t11|9||a|P1"])}),
    Row("refused, told once more", REFUSED, NOTED, called(by=TOLD, times=20)),
    Row("away, told once more", AWAY, NOTED, called(by=TOLD, times=2)),
    Row("taken, though it was told otherwise before", TAKEN, NOTED, called(by=TOLD), LEFT),
    Row("an unknown word", ("t1", A, "1"), "GILIRAN what became", called()),
    Row("no call is counted below none", AWAY, NOTED, called(times=0),
        {PARKED: shelf(t1=entry_after(by=TOLD), t1_="P1", t2=entry_after(), t2_="P2")}),
    *(Row(f"{name}: {what}", args, NOT_OURS, given)
      for what, args in (("taken", TAKEN), ("refused", REFUSED), ("away", AWAY))
      for name, given in (
          ("parked again since", called(by="", times=0)),
          ("called by another since", called(by=B, times=2)),
      )),
    *(Row(f"it has its lease already, only its deadline is left: {what}", args, NOT_OURS,
          {PARKED: shelf(t2=entry(), t2_="P2"), DUE: ranks(t1=9e12, t2=9e12)},
          {DUE: ranks(t2=9e12)})
      for what, args in (("taken", TAKEN), ("refused", REFUSED), ("away", AWAY))),
    Row("nothing is there", TAKEN, NOT_OURS),
    Row("parked of another type", TAKEN, "WRONGTYPE", {PARKED: Key("x")}),
]  # fmt: skip


@each(ROWS)
def test_offer(backend: Backend, row: Row) -> None:
    check(backend, OFFER, row)


def test_a_repeat_changes_nothing(backend: Backend) -> None:
    give_all(backend, called())
    assert backend.run(OFFER, TAKEN)[1] == "noted"
    left = backend.dump()
    assert backend.run(OFFER, TAKEN)[1] == "not ours"
    assert backend.dump() == left


def test_out_of_memory_a_taken_job_goes(own_backend: Backend) -> None:
    give_all(own_backend, called())
    own_backend.fill_up()
    check(own_backend, OFFER, Row("", TAKEN, NOTED, after=LEFT))


def test_out_of_memory_refuses_to_count_a_call_back(own_backend: Backend) -> None:
    give_all(own_backend, called())
    own_backend.fill_up()
    check(own_backend, OFFER, Row("", AWAY, "OOM"))
