"""Durations fit each other, or are refused."""

from hypothesis import given
from hypothesis import strategies as st

from giliran.timeouts import RETAIN_MAX, TTL_MAX, TTL_MIN, Timeouts


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
