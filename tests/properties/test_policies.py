"""Policies are coherent: what they draw is bounded, grows, and fits the queue and the budget."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from giliran.policies import Requeue, requeue, wait

relaxed = settings(deadline=None)  # Machines that run tests are busy.
lucks = st.floats(0.0, 1.0)
contentions = st.integers(0, 10_000)
longests = st.one_of(st.just(float("inf")), st.floats(1.0, 1e6))


@st.composite
def requeues(draw: st.DrawFn) -> Requeue:
    base = draw(st.floats(0.05, 100.0))
    cap = draw(st.floats(base, 10_000.0))
    return requeue(base=base, cap=cap, give_up_after=draw(st.floats(cap, 1e6)))


@relaxed
@given(requeues(), contentions, lucks, longests)
def test_a_delay_is_above_zero_and_below_every_ceiling(
    policy: Requeue, n: int, luck: float, longest: float
) -> None:
    delay = policy.delay(n, luck, longest)
    assert 0 < delay <= min(policy.cap, longest)
    assert delay >= min(policy.base, policy.cap, longest) / 4


@relaxed
@given(requeues(), contentions, longests)
def test_the_ceiling_grows_until_the_cap(policy: Requeue, n: int, longest: float) -> None:
    this, after = policy.delay(n, 1.0, longest), policy.delay(n + 1, 1.0, longest)
    assert this <= after
    assert policy.delay(60, 1.0, float("inf")) == pytest.approx(policy.cap, rel=1e-6) or (
        policy.base * 2**30 < policy.cap
    )


@relaxed
@given(requeues(), contentions, lucks, lucks, longests)
def test_more_luck_never_means_a_shorter_delay(
    policy: Requeue, n: int, one: float, other: float, longest: float
) -> None:
    low, high = sorted((one, other))
    assert policy.delay(n, low, longest) <= policy.delay(n, high, longest)


@relaxed
@given(st.floats(), st.floats(), st.floats())
def test_what_does_not_rise_is_refused(base: float, cap: float, give_up_after: float) -> None:
    coherent = 0.05 <= base <= cap <= give_up_after < float("inf")
    try:
        requeue(base=base, cap=cap, give_up_after=give_up_after)
    except ValueError:
        assert not coherent
    else:
        assert coherent


@relaxed
@given(st.floats())
def test_a_wait_has_an_end(budget: float) -> None:
    try:
        policy = wait(budget)
    except ValueError:
        assert not 0 < budget < float("inf")
    else:
        assert policy.budget == budget > 0
