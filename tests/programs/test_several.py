"""Several resources: at once, or one after the other where one script cannot reach them all."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.programs.play import (
    DONE,
    EVENT,
    OTHER,
    RECORD,
    RELEASED,
    START,
    TIMES,
    TOKEN,
    Late,
    Play,
    ask,
    busy,
    lost,
    misconfigured,
    refused,
    unreachable,
)  # fmt: skip
from tests.programs.stage import Delivered, Stage, put_back, raised

from giliran.errors import (
    Contended,
    GaveUp,
    LeaseLost,
    Skipped,
    StoreMisconfigured,
    StoreUnavailable,
)
from giliran.lease import Lease
from giliran.line import Shelved
from giliran.policies import Policy, fail, requeue, skip, wait
from giliran.programs import Claimed, claim, finish, keep
from giliran.steps import Call, Now
from giliran.store import Ask, Busy, Held, Memory
from giliran.verdicts import Raised, Returned, Run

if TYPE_CHECKING:
    from giliran.attempt import Attempt

ALL = [1_000_000, "held", "7", 1, "8", "9"]
BUSY_L = [1_000_000, "busy", 10_000, OTHER, 2, -1, 0, 1]
FREE = [1_000_000, "done", "", []]


def cross() -> StoreMisconfigured:
    return StoreMisconfigured("CROSSSLOT", "CROSSSLOT", ambiguous=False)


def three(memory: Memory = RECORD) -> Ask:
    return replace(ask(memory=memory), ticket="", further=("L", "M"))


def held(fence: int) -> list[Any]:
    return [1_000_000, "held", str(fence), 1]


def scripts(play: Play) -> list[str]:
    return [name for _, name, _ in play.calls]


def lease_of(play: Play, *, together: bool) -> Lease:
    return Lease("K", TOKEN, 7, 1, TIMES, play.clock, play.now, {"L": 8, "M": 9}, together=together)


# ------------------------------------------------------------------ claim


def test_one_script_takes_all() -> None:
    play = Play()
    assert play.run(claim(three(), 5.0), [ALL]) == Claimed(Held(1_000_000, 7, 1, (8, 9)), START)


def test_the_busy_one_is_named() -> None:
    found = Play().run(claim(three(), 5.0), [BUSY_L]).answer
    assert isinstance(found, Busy)
    assert (found.key, found.waiting, found.position) == ("L", 2, -1)
    queued = Play().run(claim(three(), 5.0), [[1, "queued", 3, -1, 0, 2]]).answer
    assert isinstance(queued, Busy)
    assert (queued.key, queued.by, queued.waiting) == ("M", "line", 3)
    with pytest.raises(StoreMisconfigured, match="'M' holds a hash"):
        Play().run(claim(three(), 5.0), [[1, "wrongtype", "hash", 2]])


def test_in_order_the_record_is_read_first_and_written_last() -> None:
    play = Play()
    answers = [cross(), held(7), held(8), held(9), [1_000_000, "held", "7", 2]]
    found = play.run(claim(three(), 5.0), answers)
    assert found == Claimed(Held(1_000_000, 7, 2, (8, 9)), START, together=False)
    assert [args[5] for _, _, args in play.calls] == ["record", "delivery", "", "", "record"]


@pytest.mark.parametrize("memory", [Memory(), Memory("delivery", "p1")])
def test_in_order_without_a_record_each_is_asked_once(memory: Memory) -> None:
    play = Play()
    play.run(claim(three(memory), 5.0), [cross(), held(7), held(8), held(9)])
    assert [args[5] for _, _, args in play.calls[1:]] == [memory.kind, "", ""]


def test_in_order_what_was_taken_goes_back_before_busy_is_told() -> None:
    play = Play()
    found = play.run(claim(three(), 5.0), [cross(), held(7), held(8), busy(), FREE, FREE])
    assert isinstance(found.answer, Busy)
    assert found.answer.key == "M"
    assert scripts(play)[-2:] == ["finish", "finish"]
    # Of this very grant: a late copy must not end what the next try takes.
    assert [args[1:3] + args[8:] for _, _, args in play.calls[-2:]] == [
        ("1", "release", "8"),
        ("1", "release", "7"),
    ]


def test_in_order_a_done_job_takes_nothing() -> None:
    play = Play()
    play.run(claim(three(), 5.0), [cross(), [1, "done", "done", "5", 1]])
    assert len(play.calls) == 2


@pytest.mark.parametrize("failure", [misconfigured(), [1, "wrongtype", "hash"]])
def test_in_order_a_refusal_half_way_leaves_a_debt(failure: Any) -> None:
    with pytest.raises(StoreMisconfigured) as caught:
        Play().run(claim(three(), 5.0), [cross(), held(7), failure])
    assert caught.value.ambiguous


def test_in_order_a_refusal_of_the_first_leaves_none() -> None:
    with pytest.raises(StoreMisconfigured) as caught:
        Play().run(claim(three(), 5.0), [cross(), misconfigured()])
    assert not caught.value.ambiguous


def test_in_order_what_cannot_be_given_back_is_a_debt() -> None:
    with pytest.raises(StoreUnavailable) as caught:
        Play().run(claim(three(), 5.0), [cross(), held(7), busy(), refused("LOADING")])
    assert caught.value.ambiguous


def test_in_order_lost_replies_are_asked_for_again() -> None:
    play = Play()
    answers = [cross(), held(7), unreachable(), held(8), held(9), held(7)]
    found = play.run(claim(three(), 5.0), answers)
    assert isinstance(found.answer, Held)
    assert found.asked == START


def test_in_order_patience_is_for_all_of_them_together() -> None:
    play = Play()
    answers = itertools.chain([cross(), held(7)], itertools.repeat(unreachable()))
    with pytest.raises(StoreUnavailable) as caught:
        play.run(claim(three(), 5.0), answers)
    assert caught.value.ambiguous
    assert play.clock - START < 5.0 + 2.1


def test_in_order_trust_begins_with_the_first() -> None:
    play = Play()
    slow = [cross(), Late(12.0, held(7)), Late(12.0, held(8)), held(9), held(7)]
    assert play.run(claim(three(), 60.0), slow).asked == START
    slow[3] = Late(6.0, held(9))
    with pytest.raises(StoreUnavailable, match="longer than the first") as caught:
        Play().run(claim(three(), 60.0), slow)
    assert caught.value.ambiguous


# ------------------------------------------------------------------ keep and finish


def test_one_renewal_keeps_all() -> None:
    play = Play()
    lease = lease_of(play, together=True)
    play.run(keep(lease, EVENT), [1, 1, 0])
    assert (lease.lost, play.asked) == ("expired", [10.0, 20.0, 30.0])


def test_in_order_each_has_a_renewal_and_the_first_loss_ends_all() -> None:
    play = Play()
    lease = lease_of(play, together=False)
    play.run(keep(lease, EVENT), [1, 1, 1, 1, -1])
    assert (lease.lost, play.asked) == ("taken", [10.0] * 3 + [20.0] * 2)
    assert play.names == ["lock.lost"]


def test_in_order_trust_grows_only_when_all_are_renewed() -> None:
    play = Play()
    lease = lease_of(play, together=False)
    play.run(keep(lease, EVENT), itertools.cycle([1, 1, unreachable()]))
    assert (lease.lost, play.clock) == ("unreachable", START + 29.7)


def test_one_finish_ends_all() -> None:
    play = Play()
    turn = ["job", "t", "10", "", "a", "P"]
    answer = [1_000_000, "done", "", [], turn, []]
    ended = play.run(finish(lease_of(play, together=True), "done", RECORD, "5", EVENT), [answer])
    assert ended.answer == "done"
    assert [called and called.ticket for called in ended.further] == ["t", None]


def test_in_order_the_record_is_written_when_the_others_are_confirmed() -> None:
    play = Play()
    turn = ["wait", "w", "10", "", "", ""]
    answers = [[1, "done", "", turn], DONE, DONE]
    ended = play.run(finish(lease_of(play, together=False), "done", RECORD, "5", EVENT), answers)
    assert [args[2] for _, _, args in play.calls] == ["release", "release", "done"]
    assert [called and called.ticket for called in ended.further] == ["w", None]


def test_in_order_a_lost_one_leaves_the_record_unwritten() -> None:
    play = Play()
    with pytest.raises(LeaseLost):
        play.run(finish(lease_of(play, together=False), "done", RECORD, "5", EVENT), [DONE, lost()])
    assert len(play.calls) == 2


def test_in_order_an_unconfirmed_release_is_told_and_the_record_written_all_the_same() -> None:
    play = Play()
    answers = [misconfigured(), DONE, DONE]
    ended = play.run(finish(lease_of(play, together=False), "done", RECORD, "5", EVENT), answers)
    assert (ended.answer, ended.reason) == ("done", "NOPERM")


# ------------------------------------------------------------------ attempts


class Several(Stage):
    """An attempt that wants three resources."""

    def attempt(self) -> Attempt:
        made = super().attempt()
        made.ask = three(self.memory)
        self.made = made
        return made


def settle(stage: Several, *answers: Any) -> None:
    left = iter(answers)
    for program in stage.made.settle():
        stage.run(program, left)
    assert next(left, None) is None


def test_runs_with_a_fence_of_each() -> None:
    verdict = Several().open(ALL)
    assert isinstance(verdict, Run)
    assert dict(verdict.lease.fences) == {"K": 7, "L": 8, "M": 9}
    assert verdict.lease.key == "K L M"
    with pytest.raises(TypeError, match=r"of 3 resources.*lease\.fences\['K'\]"):
        _ = verdict.lease.fence


@pytest.mark.parametrize(
    ("policy", "error"), [(fail(), Contended), (skip(), Skipped), (requeue(), Contended)]
)
def test_errors_name_the_busy_key_and_its_holder(
    policy: Policy, error: type[Contended | Skipped]
) -> None:
    stage = Several(policy=policy, job=None)
    found = raised(stage.open(BUSY_L))
    assert isinstance(found, error)
    assert (found.key, found.holder) == ("L", "t j2 on h:1")
    told = next(event for event in stage.told if event.name == "lock.contended")
    assert (told.lock_key, told.fields["busy_key"]) == ("K L M", "L")


def test_a_job_is_put_back_even_where_others_stand_in_line() -> None:
    stage = Several(policy=requeue(), job=Delivered(shelved=Shelved("a", "P")))
    put_back(stage.open(BUSY_L))
    job = Delivered()
    job.carried = replace(job.carried, contended_since_ms=1, contentions=3)
    spent = Several(policy=requeue(), job=job)
    found = raised(spent.open(BUSY_L))
    assert isinstance(found, GaveUp)
    assert found.key == "L"


def test_a_copy_is_put_back_outside_of_the_budget() -> None:
    copy = Several(policy=skip())
    copy_of = put_back(copy.open([1, "duplicate", 9_000, OTHER, 0, -1, 0, 2]))
    assert copy_of.carried.contentions == 0
    assert copy.names == ["lock.duplicate"]


def test_waiting_looks_again_and_again_and_leaves_no_place() -> None:
    stage = Several(policy=wait(3), job=None)
    answers = itertools.chain([BUSY_L] * 4, [ALL])
    assert isinstance(stage.run(stage.attempt().open(5.0), answers), Run)
    assert stage.naps == pytest.approx([0.05, 0.1, 0.2, 0.4])
    assert {args[13] for _, _, args in stage.calls} == {""}
    gives_up = Several(policy=wait(1), job=None)
    raised(gives_up.run(gives_up.attempt().open(5.0), itertools.repeat(BUSY_L)))
    assert gives_up.clock == START + 1
    settle(gives_up)


def test_a_line_that_is_passed_over_is_swept_at_the_key_where_it_is() -> None:
    stage = Several(policy=fail(), job=None)
    raised(stage.open([1, "queued", 1, -1, 0, 2]))
    (debt,) = stage.made.settle()
    assert isinstance(next(debt), Now)
    step = debt.send(0.0)
    assert isinstance(step, Call)
    assert (step.script.name, step.keys[0]) == ("sweep", "M")


def test_an_ambiguous_claim_is_given_back_everywhere() -> None:
    stage = Several(policy=fail(), job=None)
    found = stage.run(stage.attempt().open(5.0), itertools.repeat(unreachable()))
    assert isinstance(raised(found), StoreUnavailable)
    stage.calls.clear()
    settle(stage, RELEASED, RELEASED, RELEASED)
    assert [(args[1], args[2]) for _, _, args in stage.calls] == [("1", "forget")] * 3


def test_losing_one_gives_back_the_others() -> None:
    stage = Several(job=None)
    attempt = stage.attempt()
    found = raised(
        stage.run(attempt.close(lease_of(stage, together=True), Returned(1)), [lost("taken")])
    )
    assert isinstance(found, LeaseLost)
    stage.calls.clear()
    settle(stage, RELEASED, DONE, DONE)
    assert [args[2] for _, _, args in stage.calls] == ["release"] * 3


def test_a_body_that_raised_while_one_was_lost_gives_back_the_others() -> None:
    stage = Several(job=None)
    attempt = stage.attempt()
    error = ValueError()
    lease = lease_of(stage, together=True)
    ended = stage.run(attempt.close(lease, Raised(error)), [lost("taken")])
    assert raised(ended) is error
    settle(stage, RELEASED, DONE, DONE)


def test_whoever_is_next_at_any_of_them_comes() -> None:
    stage = Several(job=None)
    attempt = stage.attempt()
    turn = ["job", "t", "10", "", "a", "P"]
    answer = [1_000_000, "done", "", [], [], turn]
    stage.run(attempt.close(lease_of(stage, together=True), Returned(1)), [answer])
    settle(stage, [1, "noted"])
    assert [step.payload for step in stage.published] == ["P"]
    assert [event.lock_key for event in stage.told if event.name == "job.called"] == ["M"]
