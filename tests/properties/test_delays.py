"""Delays of `requeue`: bounded, growing, and never beyond what the queue bears."""

from hypothesis import given
from hypothesis import strategies as st

from giliran.policies import Requeue, requeue
from giliran.timeouts import RETAIN_MAX, TTL_MAX, TTL_MIN, Timeouts

durations = st.floats(0.05, 1e6)


@st.composite
def policies(draw: st.DrawFn) -> Requeue:
    base, cap, budget = sorted((draw(durations), draw(durations), draw(durations)))
    return requeue(base=base, cap=cap, give_up_after=budget)


@given(policies(), st.integers(0, 10_000), st.floats(0, 1), st.floats(0.01, 1e6))
def test_a_delay_is_positive_and_within_every_bound(
    policy: Requeue, contentions: int, luck: float, longest: float
) -> None:
    delay = policy.delay(contentions, luck, longest)
    assert 0 < delay <= min(policy.cap, longest)


@given(policies(), st.integers(0, 100), st.floats(0, 1))
def test_ceilings_grow_with_every_contention(policy: Requeue, n: int, luck: float) -> None:
    never = float("inf")
    assert policy.delay(n, 1.0, never) <= policy.delay(n + 1, 1.0, never)
    assert policy.delay(n, luck, never) <= policy.delay(n, 1.0, never)


@given(st.floats(TTL_MIN, TTL_MAX), st.floats(TTL_MIN, 7 * TTL_MAX), st.floats(TTL_MIN, RETAIN_MAX))
def test_durations_fit_or_are_refused(ttl: float, max_hold: float, retain: float) -> None:
    try:
        timeouts = Timeouts(ttl, max_hold, retain)
    except ValueError:
        assert ttl > max_hold or ttl > retain
    else:
        assert 0 < timeouts.margin < timeouts.ttl / 3 <= timeouts.renew_every
        # After one renewal fails, two more fit before trust ends.
        assert timeouts.renew_every + 3 * timeouts.renew_timeout <= timeouts.ttl - timeouts.margin
