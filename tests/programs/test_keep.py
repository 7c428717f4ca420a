from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.programs.play import EVENT, START, Late, Play, always, refused, unreachable

from giliran.lease import Lease
from giliran.programs import keep
from giliran.timeouts import Timeouts

TRUST = 29.7


def kept(play: Play, lease: Lease, *answers: Any) -> None:
    """Keep until Redis, which has given these answers, says the lease is another's."""
    play.run(keep(lease, EVENT), [*answers, -1])
    assert lease.lost == "taken"


def test_renews_every_third_of_the_ttl() -> None:
    play = Play()
    kept(play, play.lease(), 1, 1, 1)
    assert play.asked == [10, 20, 30, 40]


def test_a_renewal_counts_from_before_its_request() -> None:
    play = Play()
    lease = play.lease()
    kept(play, lease, Late(3.0, 1))
    assert lease.trusted_until == START + 10 + TRUST
    assert play.asked == [10, 20]


def test_one_blip_is_retried_and_the_lease_is_kept() -> None:
    play = Play()
    kept(play, play.lease(), unreachable(), 1, 1)
    assert play.asked == [10, 16.25, 26.25, 36.25]
    assert play.names == ["lock.renew_failed", "lock.lost"]


def test_there_are_two_more_tries_after_the_first_failure() -> None:
    play = Play()
    kept(play, play.lease(), unreachable(), unreachable(), 1)
    assert play.asked[2] + 3.75 < TRUST


@pytest.mark.parametrize(("answer", "reason"), [(0, "expired"), (-1, "taken"), (-2, "max_hold")])
def test_a_definite_no_ends_it_at_once(answer: int, reason: str) -> None:
    play = Play()
    lease = play.lease()
    play.run(keep(lease, EVENT), [answer])
    assert (lease.lost, play.clock) == (reason, START + 10)
    assert [(event.name, event.reason) for event in play.told] == [("lock.lost", reason)]


def failures() -> list[Any]:
    return [unreachable, lambda: refused("LOADING"), lambda: refused("MISCONF")]


@pytest.mark.parametrize("failure", failures())
def test_an_outage_is_told_exactly_when_trust_ends(failure: Any) -> None:
    play = Play()
    lease = play.lease()
    play.run(keep(lease, EVENT), always(failure))
    assert (lease.lost, play.clock) == ("unreachable", START + TRUST)
    assert play.names[-1] == "lock.lost"
    assert play.told[-1].reason == "unreachable"


def test_max_hold_ends_it_exactly() -> None:
    play = Play()
    lease = play.lease(Timeouts(30, 65, 3600))
    play.run(keep(lease, EVENT), always(lambda: 1))
    assert lease.lost == "max_hold"
    assert play.clock == pytest.approx(START + 64.35)  # 1 % early: clocks drift for all of it.
    assert len(play.calls) == 6


def test_a_frozen_holder_notices_when_it_thaws() -> None:
    play = Play()
    lease = play.lease()
    program = keep(lease, EVENT)
    next(program)
    play.clock += 40
    assert lease.lost == "expired"
    play.run(program)
    assert (lease.lost, play.calls) == ("expired", [])


def test_an_answer_after_the_end_of_trust_does_not_revive_the_lease() -> None:
    play = Play()
    lease = play.lease()
    play.run(keep(lease, EVENT), [Late(25.0, 1)])
    assert lease.lost == "expired"
    assert play.names == ["lock.lost"]


def test_an_outage_that_ends_in_time_is_forgotten() -> None:
    play = Play()
    lease = play.lease()
    answers = itertools.chain([unreachable(), 1], [Late(40.0, 1)])
    play.run(keep(lease, EVENT), answers)
    assert lease.lost == "expired"
