"""Durations that do not fit are refused before anything runs, with numbers and advice."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from giliran import Giliran

turns = Giliran("redis://127.0.0.1:1")

NONE_AT_ALL = "finite duration of at least 0 s"
OUTSIDE = "outside 1 s to 86400 s: .* 30 s is a good start"


@pytest.mark.parametrize(
    ("ttl", "error", "text"),
    [
        (0, ValueError, OUTSIDE),
        (0.999, ValueError, OUTSIDE),
        (timedelta(milliseconds=1), ValueError, OUTSIDE),
        (86_401, ValueError, OUTSIDE),
        (timedelta(days=2), ValueError, OUTSIDE),
        (-1, ValueError, NONE_AT_ALL),
        (math.nan, ValueError, NONE_AT_ALL),
        (math.inf, ValueError, NONE_AT_ALL),
        (True, TypeError, "seconds or a timedelta, not True"),
        (False, TypeError, "seconds or a timedelta, not False"),
        (None, TypeError, "seconds or a timedelta, not None"),
        ("30", TypeError, "seconds or a timedelta, not '30'"),
    ],
)
def test_a_ttl_that_is_none(ttl: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        turns.exclusive("lock:{order}", ttl=ttl)
    with pytest.raises(error, match=text):
        turns.once("lock:{order}", ttl=ttl)
    with pytest.raises(error, match=text):
        turns.hold("lock:1", ttl=ttl)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ttl": 60, "max_hold": 30}, "max_hold=30 s must lie between ttl=60 s .* or lower ttl"),
        ({"max_hold": 0}, "max_hold=0 s must lie between ttl=30 s"),
        ({"max_hold": 8 * 86_400}, "max_hold=691200 s must lie between ttl=30 s and 604800 s"),
        ({"max_hold": math.nan}, NONE_AT_ALL),
        ({"ttl": 60, "retain": 30}, "retain=30 s must lie between ttl=60 s .* lets it run again"),
        ({"retain": timedelta(days=500)}, "such as a day"),
        ({"retain": -1}, NONE_AT_ALL),
        ({"recoveries": -1}, "recoveries must be at least 0"),
        ({"on_lost": "panic"}, '"interrupt" or "flag"'),
        ({"after_crash": "again"}, '"retry" or "hold"'),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        turns.exclusive("lock:{order}", **options)
    with pytest.raises(ValueError, match=text):
        turns.once("lock:{order}", **options)


@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        ("", ValueError, "is empty: name the resource"),
        ("lock:" + "x" * 600, ValueError, "605 bytes, more than 512: use an id"),
        ("lock 1", ValueError, "space or control at 4: write it as %XX"),
        ("lock:{}", ValueError, "not one hash tag: write one pair"),
        ("lock:}{", ValueError, "not one hash tag"),
        ("{a}{b}", ValueError, "not one hash tag"),
        (42, TypeError, "must be a str, not int"),
    ],
)
def test_a_key_that_names_nothing(key: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        turns.hold(key)


def test_a_template_that_names_a_missing_argument_fails_at_decoration() -> None:
    def refund(order_id: int) -> None: ...

    for template in ("lock:{orderid}", "lock:{order_id}:{customer}"):
        with pytest.raises(ValueError, match=r"which it lacks.*usable: order_id"):
            turns.exclusive(template)(refund)
        with pytest.raises(ValueError, match="which it lacks"):
            turns.exclusive("lock:{order_id}", idempotency_key=template)(refund)
    with pytest.raises(ValueError, match="did you mean 'order_id'"):
        turns.exclusive("lock:{order_id}", fingerprint=("orderid",))(refund)


def test_arguments_that_make_no_key_fail_before_redis_is_asked() -> None:
    """Nothing listens there: were it asked, it would be unavailable."""

    @turns.exclusive("lock:{order}")
    def refund(order: object) -> None:
        pytest.fail("must not run")

    for wrong in (True, 1.5, None, ["1"]):
        with pytest.raises(TypeError, match="has no one text for a key: pass an id"):
            refund(wrong)
    with pytest.raises(ValueError, match="is empty, so all such calls would share one key"):
        refund("")
    with pytest.raises(ValueError, match="more than 512: use an id"):
        refund("x" * 600)
    with pytest.raises(TypeError, match="missing a required argument"):
        refund()  # type: ignore[call-arg]


@pytest.mark.parametrize("budget", [-1, math.nan, math.inf])
def test_a_wait_without_end_is_refused(budget: float) -> None:
    with pytest.raises(ValueError, match="wait must be a finite duration"):
        turns.hold("lock:1", wait=budget)
