from __future__ import annotations

import pytest
from tests.programs.play import (
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
from giliran.programs import Claimed, acquire, claim
from giliran.steps import Program
from giliran.store import Busy, Held
from giliran.timeouts import Timeouts


def acquire_all(budget: float, luck: float = 1.0) -> Program[Claimed]:
    return acquire(ask(), 5.0, budget, lambda: luck)


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


def test_acquire_makes_a_last_try_at_the_end_of_its_budget() -> None:
    play = Play()
    claimed = play.run(acquire_all(2.0), always(busy))
    assert isinstance(claimed.answer, Busy)
    assert play.asked == pytest.approx([0, 0.05, 0.15, 0.35, 0.75, 1.55, 2.0])


def test_acquire_without_a_budget_asks_once() -> None:
    play = Play()
    assert isinstance(play.run(acquire_all(0.0), [busy()]).answer, Busy)


def test_acquire_comes_when_the_lease_ends() -> None:
    play = Play()
    claimed = play.run(acquire_all(60.0, luck=0.0), [busy(20), HELD])
    assert isinstance(claimed.answer, Held)
    assert play.asked == pytest.approx([0, 0.021])


def test_acquire_polls_a_lock_without_an_end_every_second() -> None:
    play = Play()
    play.run(acquire_all(60.0), always(lambda: busy(-1)))
    assert max(play.naps) == 1.0
    assert len(play.calls) < 70


def test_acquire_spreads_its_polls() -> None:
    naps: list[float] = []
    for luck in (0.0, 0.5, 1.0):
        play = Play()
        play.run(acquire_all(60.0, luck), [busy(), HELD])
        naps += play.naps
    assert naps == pytest.approx([0.025, 0.0375, 0.05])
