"""One way to write a test for both faces.

Bodies are coroutines that wait by `face.pause` only. The sync face runs them as plain functions
in this thread, where `pause` blocks; the async face runs them in an event loop of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from typing import Any, ParamSpec, Protocol, TypeVar

from giliran import Giliran, Lease, LeaseInterrupt
from giliran.hold import Hold

P = ParamSpec("P")
R = TypeVar("R")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Face(Protocol):
    """How guarded code is written and run."""

    turns: Giliran
    interrupt: type[BaseException]

    def guard(
        self, decorator: Decorator
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]: ...

    def enter(self, hold: Hold) -> contextlib.AbstractAsyncContextManager[Lease]: ...

    async def pause(self, seconds: float) -> None: ...

    def run(self, main: Coroutine[Any, Any, R]) -> R: ...


def finish_without_waiting(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: R = stop.value
        return result
    raise AssertionError("it waited")


class SyncFace:
    """Plain functions and `with`."""

    interrupt: type[BaseException] = LeaseInterrupt

    def __init__(self, turns: Giliran) -> None:
        self.turns = turns

    def guard(
        self, decorator: Decorator
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
        def decorate(
            body: Callable[P, Coroutine[Any, Any, R]],
        ) -> Callable[P, Coroutine[Any, Any, R]]:
            @functools.wraps(body)
            def plain(*args: P.args, **kwargs: P.kwargs) -> R:
                return finish_without_waiting(body(*args, **kwargs))

            wrapper = decorator(plain)

            async def call(*args: P.args, **kwargs: P.kwargs) -> R:
                result: R = wrapper(*args, **kwargs)
                return result

            return call

        return decorate

    @contextlib.asynccontextmanager
    async def enter(self, hold: Hold) -> AsyncGenerator[Lease]:
        with hold as lease:
            yield lease

    async def pause(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            time.sleep(min(0.003, left))  # noqa: ASYNC251  this face has no event loop

    def run(self, main: Coroutine[Any, Any, R]) -> R:
        return finish_without_waiting(main)


class AsyncFace:
    """Coroutines and `async with`."""

    interrupt: type[BaseException] = asyncio.CancelledError

    def __init__(self, turns: Giliran) -> None:
        self.turns = turns

    def guard(
        self, decorator: Decorator
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
        return decorator

    def enter(self, hold: Hold) -> contextlib.AbstractAsyncContextManager[Lease]:
        return hold

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def run(self, main: Coroutine[Any, Any, R]) -> R:
        return asyncio.run(closing(self.turns, main))


async def closing(turns: Giliran, main: Awaitable[R]) -> R:
    """Await something and close this loop's connections."""
    try:
        return await main
    finally:
        await turns.aclose()


@contextlib.contextmanager
def elsewhere(turns: Giliran, key: str, ttl: float = 30) -> Generator[Lease]:
    """Hold a resource as another thread or task would."""
    context = contextvars.Context()
    hold = turns.hold(key, ttl=ttl, on_lost="flag")
    lease = context.run(hold.__enter__)
    try:
        yield lease
    finally:
        context.run(hold.__exit__, None, None, None)


@contextlib.contextmanager
def later(action: Callable[[], object], seconds: float) -> Generator[None]:
    """Do something in another thread after a while."""
    timer = threading.Timer(seconds, action)
    timer.start()
    try:
        yield
    finally:
        timer.join()
