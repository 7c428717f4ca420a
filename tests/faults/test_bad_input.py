"""What cannot be meant is refused where it is written, and says what to write instead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from giliran import AlreadyHeld, Giliran

if TYPE_CHECKING:
    from tests.faults.conftest import Connect

    from giliran.testing._proxy import FaultProxy

NOWHERE = "redis://127.0.0.1:1"
Write = Callable[[Giliran, str, Any], object]


def exclusive(turns: Giliran, key: str, ttl: Any) -> object:
    return turns.exclusive(key, ttl=ttl)(work)


def once(turns: Giliran, key: str, ttl: Any) -> object:
    return turns.once(key, ttl=ttl)(work)


def hold(turns: Giliran, key: str, ttl: Any) -> object:
    return turns.hold(key.replace("{order}", "1"), ttl=ttl)


def work(order: int) -> int:
    return order


WAYS: tuple[Write, ...] = (exclusive, once, hold)


@pytest.fixture
def turns(connect: Connect) -> Giliran:
    """Nobody answers there: what is refused is refused before any round trip."""
    return connect(NOWHERE)


@pytest.mark.parametrize(
    ("ttl", "error", "says"),
    [
        (0, ValueError, "ttl=0 s is outside 1 s to 86400 s"),
        (0.999, ValueError, "ttl=0.999 s is outside 1 s to 86400 s"),
        (timedelta(milliseconds=999), ValueError, "30 s is a good start"),
        (86_401, ValueError, "ttl=86401 s is outside 1 s to 86400 s"),
        (timedelta(days=2), ValueError, "a longer one blocks the resource after a crash"),
        (-1, ValueError, "ttl must be a finite duration of at least 0 s, not -1"),
        (float("nan"), ValueError, "ttl must be a finite duration of at least 0 s, not nan"),
        (float("inf"), ValueError, "ttl must be a finite duration of at least 0 s, not inf"),
        (True, TypeError, "ttl must be seconds or a timedelta, not True"),
        ("30", TypeError, "ttl must be seconds or a timedelta, not '30'"),
        (None, TypeError, "ttl must be seconds or a timedelta, not None"),
    ],
)
def test_a_ttl_that_cannot_be_meant_is_refused(
    turns: Giliran, ttl: object, error: type[Exception], says: str
) -> None:
    for write in WAYS:
        with pytest.raises(error, match=says):
            write(turns, "lock:{order}", ttl)


def test_a_ttl_within_its_bounds_is_taken(turns: Giliran) -> None:
    for write in WAYS:
        for ttl in (1, 1.0, 3600, timedelta(hours=1)):
            write(turns, "lock:{order}", ttl)


def test_a_ttl_of_a_day_raises_the_default_of_max_hold(turns: Giliran) -> None:
    turns.exclusive("lock:{order}", ttl=86_400)(work)
    turns.hold("lock:1", ttl=86_400)
    with pytest.raises(ValueError, match=r"raise max_hold .* or lower ttl"):
        turns.hold("lock:1", ttl=86_400, max_hold=3600)


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("", "is empty: name the resource"),
        ("k" * 513, "has 513 bytes, more than 512: use an id"),
        ("ä" * 257, "has 514 bytes, more than 512: use an id"),
        ("lock: 1", "has a space or control at 5: write it as %XX"),
        ("lock:\n1", "has a space or control at 5: write it as %XX"),
        ("{lock:1", "has braces that are not one hash tag"),
        ("lock:{}", "has braces that are not one hash tag"),
        ("{a}:{b}", "has braces that are not one hash tag"),
        ("}a{", "has braces that are not one hash tag"),
        ("lock:\ud800", "has a lone surrogate at position 5"),
    ],
)
def test_a_key_that_redis_or_people_would_misread_is_refused(
    turns: Giliran, key: str, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        turns.hold(key)


def test_a_key_that_is_no_text_is_refused(turns: Giliran) -> None:
    no_text: Any = 42
    with pytest.raises(TypeError, match="the key must be a str, not int"):
        turns.hold(no_text)


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("lock:{customer}", "customer"),
        ("lock:{order", "has a single '{' at position 5"),
        ("lock:{order.id}", "no attribute, index, conversion or format"),
        ("lock:1", "all calls of .*work.* would share one key"),
        ("lock: {order}", "has a space or control"),
        ("", "is empty"),
        ("k" * 513 + "{order}", "more than 512"),
    ],
)
def test_a_template_that_does_not_fit_its_function_is_refused_at_decoration(
    turns: Giliran, template: str, says: str
) -> None:
    for decorate in (exclusive, once):
        with pytest.raises(ValueError, match=says):
            decorate(turns, template, 30)


@pytest.mark.parametrize("decorate", [exclusive, once])
def test_an_argument_that_makes_no_key_is_refused_at_the_call(
    turns: Giliran, decorate: Callable[[Giliran, str, Any], Any]
) -> None:
    guarded = decorate(turns, "lock:{order}", 30)
    for argument, error, says in (
        ("", ValueError, "is empty, so all such calls would share one key"),
        (None, TypeError, "is of type NoneType, which has no one text for a key"),
        (1.5, TypeError, "is of type float, which has no one text for a key"),
        (True, TypeError, "is of type bool, which has no one text for a key"),
        ("k" * 513, ValueError, "more than 512"),
    ):
        with pytest.raises(error, match=says):
            guarded(argument)


def test_a_claim_of_ones_own_key_costs_no_round_trip(connect: Connect, proxy: FaultProxy) -> None:
    turns = connect(proxy.url)
    with turns.hold("lock:1"):
        before = proxy.requests
        with pytest.raises(AlreadyHeld) as told, turns.hold("lock:1", wait=60):
            pytest.fail("must not run")
        assert proxy.requests == before
    assert told.value.key == "lock:1"
    assert "guard the outer function only" in str(told.value)
    with turns.hold("lock:1"):
        pass


def test_a_coroutines_claim_of_its_own_key_costs_no_round_trip(
    connect: Connect, proxy: FaultProxy
) -> None:
    turns = connect(proxy.url)

    @turns.exclusive("lock:{order}")
    async def inner(order: int) -> None:
        pytest.fail(f"must not run for {order}")

    async def main() -> None:
        async with turns.hold("lock:1"):
            before = proxy.requests
            with pytest.raises(AlreadyHeld):
                await inner(1)
            with pytest.raises(AlreadyHeld):
                await asyncio.create_task(inner(1))  # It inherits what its maker holds.
            assert proxy.requests == before
        await turns.aclose()

    asyncio.run(main())
