from __future__ import annotations

from typing import Any

import pytest
from tests.programs.play import (
    EVENT,
    HELD,
    START,
    TOKEN,
    Late,
    Play,
    always,
    ask,
    busy,
    misconfigured,
    refused,
    unreachable,
)  # fmt: skip

from giliran.errors import StoreMisconfigured, StoreUnavailable
from giliran.handoff import Caller, acquire
from giliran.programs import Claimed, claim
from giliran.steps import Program
from giliran.store import Busy, Held
from giliran.timeouts import Timeouts


def acquire_all(budget: float, luck: float = 1.0) -> Program[Claimed]:
    return acquire(ask(), 5.0, budget, lambda: luck, Caller("K", TOKEN, (), EVENT))


def test_trust_is_counted_from_before_the_request() -> None:
    play = Play()
    claimed = play.run(claim(ask(), 5.0), [Late(1.5, HELD)])
    assert claimed == Claimed(Held(1_000_000, 7, 1), START)


def test_a_lost_reply_is_asked_again_with_the_same_token() -> None:
    play = Play()
    claimed = play.run(claim(ask(), 5.0), [unreachable(), HELD])
    assert claimed.asked == START + 2.05
    assert [args[0] for _, _, args in play.calls] == [TOKEN, TOKEN]


def test_an_answer_too_late_to_be_trusted_is_asked_again() -> None:
    play = Play()
    claimed = play.run(claim(ask(), 60.0), [Late(29.7, HELD), HELD])
    assert claimed.asked == START + 29.7
    assert play.run(claim(ask(), 60.0), [Late(29.6, HELD)]).asked == START + 29.7


def test_answers_that_always_come_too_late_end_with_the_patience() -> None:
    play = Play()
    with pytest.raises(StoreUnavailable) as caught:
        play.run(claim(ask(Timeouts(1, 600, 3600)), 5.0), always(lambda: Late(1.0, HELD)))
    assert caught.value.ambiguous
    assert play.clock <= START + 6.0


def test_no_answer_ends_with_the_patience() -> None:
    play = Play()
    with pytest.raises(StoreUnavailable):
        play.run(claim(ask(), 5.0), always(unreachable))
    assert play.clock - START <= 5.0 + 2.0


def test_a_refusal_that_may_pass_is_asked_again() -> None:
    play = Play()
    assert isinstance(play.run(claim(ask(), 5.0), [refused("LOADING"), HELD]).answer, Held)


def test_a_misconfiguration_is_told_at_once() -> None:
    with pytest.raises(StoreMisconfigured) as caught:
        Play().run(claim(ask(), 5.0), [misconfigured()])
    assert not caught.value.ambiguous


@pytest.mark.parametrize("then", [refused, misconfigured])
def test_one_unanswered_request_makes_the_claim_ambiguous(then: type) -> None:
    play = Play()
    with pytest.raises(StoreUnavailable) as caught:
        play.run(claim(ask(), 2.07), [unreachable(), then("NOPERM"), then("NOPERM")])
    assert caught.value.ambiguous


def foreign(remaining_ms: int, position: int) -> Any:
    return [1_000_000, "busy", remaining_ms, "", position + 1, position, 1234]


def test_acquire_makes_a_last_try_at_the_end_of_its_budget() -> None:
    play = Play()
    claimed = play.run(acquire_all(2.0), always(lambda: foreign(-1, 0)))
    assert isinstance(claimed.answer, Busy)
    assert play.asked == pytest.approx([0, 0.05, 0.15, 0.35, 0.75, 1.55, 2.0])


def test_acquire_without_a_budget_asks_once_and_does_not_stand_in_line() -> None:
    play = Play()
    assert isinstance(play.run(acquire_all(0.0), [busy()]).answer, Busy)
    assert play.calls[0][2][-1] == ""


def test_acquire_keeps_the_rank_it_was_given() -> None:
    play = Play()
    play.run(acquire_all(60.0), [foreign(500, 0), HELD])
    assert [args[-2:] for _, _, args in play.calls] == [("", "15000"), ("1234", "15000")]


def test_acquire_comes_when_the_lease_ends_and_who_is_behind_comes_later() -> None:
    for position, asked in ((0, 0.021), (3, 0.081)):
        play = Play()
        claimed = play.run(acquire_all(60.0), [foreign(20, position), HELD])
        assert isinstance(claimed.answer, Held)
        assert play.asked == pytest.approx([0, asked])


def test_behind_one_of_ours_acquire_listens_and_only_says_now_and_then_that_it_lives() -> None:
    play = Play()
    play.run(acquire_all(60.0), always(lambda: busy(30_000)))
    assert set(play.naps) == {5.0}


def test_first_behind_a_foreign_lock_without_an_end_acquire_looks_every_second() -> None:
    play = Play()
    play.run(acquire_all(60.0), always(lambda: foreign(-1, 0)))
    assert max(play.naps) == 1.0
    assert len(play.calls) < 70


def test_acquire_spreads_its_polls() -> None:
    naps: list[float] = []
    for luck in (0.0, 0.5, 1.0):
        play = Play()
        play.run(acquire_all(60.0, luck), [foreign(-1, 0), HELD])
        naps += play.naps
    assert naps == pytest.approx([0.025, 0.0375, 0.05])


def test_a_line_that_nobody_calls_is_swept_by_who_meets_it() -> None:
    play = Play()
    queued = [1_000_000, "queued", 2, 1, 1234]
    play.run(acquire_all(60.0), [queued, [1_000_000, 1, "", ["wait", "p2", "5", "", "", ""]], HELD])
    assert [name for _, name, _ in play.calls] == ["claim", "sweep", "claim"]
