"""What cannot be guarded is refused at decoration, with a word on what to do instead."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Literal, cast

import pytest

from giliran import Giliran, coalesce, hand_off, requeue, skip, wait, whole_function
from giliran.policies import Policy
from giliran.testing import off

turns = Giliran("redis://127.0.0.1:1")


class Task:
    def __call__(self, order: int) -> None: ...


def generator(order: int) -> Iterator[int]:
    yield order


async def async_generator(order: int) -> AsyncIterator[int]:
    yield order


@pytest.mark.parametrize("function", [Task(), generator, async_generator])
def test_what_would_run_outside_of_its_guard_is_refused(function: Callable[[int], object]) -> None:
    with pytest.raises(TypeError, match=r"below the queue's own decorator|run after the guard"):
        turns.exclusive("lock:{order}")(function)


def test_a_plain_function_that_returns_a_coroutine_is_refused_when_it_does() -> None:
    async def later(order: int) -> int:
        return order

    def forgetful(order: int) -> object:
        return later(order)

    with off(turns), pytest.raises(TypeError, match="async def"):
        turns.exclusive("lock:{order}")(forgetful)(1)
    with off(turns):
        assert asyncio.run(turns.exclusive("lock:{order}")(later)(2)) == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"after_crash": "ignore"}, "after_crash"),
        ({"on_lost": "shout"}, "on_lost"),
        ({"recoveries": -1}, "recoveries"),
        ({"ttl": 60, "max_hold": 30}, "max_hold=30 s must lie between ttl=60 s"),
        ({"max_hold": 0}, "max_hold=0 s must lie between ttl=30 s"),
        ({"ttl": 60, "retain": 30}, "retain=30 s must lie between ttl=60 s"),
        ({"ttl": timedelta(days=2)}, "ttl=172800 s is outside"),
        ({"fingerprint": ("amount",)}, "amount"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        turns.exclusive("lock:{order}", **options)(lambda order: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: requeue(base=10, cap=5),
        lambda: requeue(cap=60, give_up_after=30),
        lambda: requeue(base=0),
        lambda: requeue(then=cast("Literal['fail']", "explode")),
        lambda: wait(0),
        lambda: wait(-1),
        lambda: wait(1, then=cast("Literal['fail']", "explode")),
    ],
)
def test_policies_that_do_not_fit_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"must|needs"):
        make()


def test_a_whole_function_is_locked_by_an_explicit_word_only() -> None:
    with pytest.raises(ValueError, match="whole_function"):
        turns.exclusive("lock:nightly")(lambda: None)
    turns.exclusive(whole_function("lock:nightly"), on_contention=skip())(lambda: None)


@pytest.mark.parametrize("policy", [hand_off(), coalesce()], ids=["hand_off", "coalesce"])
def test_who_needs_several_resources_is_not_parked_for_one(policy: Policy) -> None:
    with pytest.raises(ValueError, match=r"in the line of one resource, and this guard has 2: use"):
        turns.exclusive(["a:{order}", "b:{order}"], on_contention=policy)(lambda order: None)
    turns.exclusive(["a:{order}"], on_contention=policy)(lambda order: None)


def test_a_list_of_keys_names_each_resource_once_and_not_too_many() -> None:
    with pytest.raises(ValueError, match=r"has 'a:\{order\}' twice"):
        turns.exclusive(["a:{order}", "b", "a:{order}"])(lambda order: None)
    for count in (0, 65):
        with pytest.raises(ValueError, match=f"takes 1 to 64 keys, not {count}"):
            turns.exclusive([f"k{n}:{{order}}" for n in range(count)])(lambda order: None)
        with pytest.raises(ValueError, match=f"takes 1 to 64 keys, not {count}"):
            turns.hold([f"k{n}" for n in range(count)])
    with pytest.raises(ValueError, match="which it lacks"):
        turns.exclusive(["a:{order}", "b:{wallet}"])(lambda order: None)
    with pytest.raises(ValueError, match="has a space"):
        turns.hold(["a", "b c"])
    with pytest.raises(TypeError, match="a key is a template or a function, not list"):
        turns.once(cast("str", ["a:{order}", "b:{order}"]))(lambda order: None)
    with pytest.raises(TypeError, match="must be a str, not set"):
        turns.hold(cast("list[str]", {"a", "b"}))
