"""One suite, two faces: a thread that is interrupted, and a task that is cancelled."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from giliran import Giliran, LeaseInterrupt


@pytest.fixture
def turns(redis_url: str) -> Iterator[Giliran]:
    turns = Giliran(redis_url)
    yield turns
    turns.close()


class Face:
    """Runs the same test against the sync and the async face."""

    def __init__(self, turns: Giliran, *, awaited: bool) -> None:
        self.turns = turns
        self.awaited = awaited
        self.interrupt: type[BaseException] = asyncio.CancelledError if awaited else LeaseInterrupt

    def guard(self, decorate: Callable[[Any], Any], body: Callable[..., Any]) -> Callable[..., Any]:
        """Guard a body, as a plain or as an async function of one argument."""
        if not self.awaited:
            return decorate(body)  # type: ignore[no-any-return]

        async def abody(order: int) -> Any:
            return await asyncio.sleep(0, body(order))

        abody.__annotations__["return"] = body.__annotations__.get("return", Any)
        guarded = decorate(abody)
        return lambda *args: self.run(guarded(*args))

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in a loop of its own, and close its connections."""

        async def main() -> Any:
            try:
                return await coroutine
            finally:
                await self.turns.aclose()

        return asyncio.run(main())


@pytest.fixture(params=[False, True], ids=["thread", "task"])
def face(turns: Giliran, request: pytest.FixtureRequest) -> Face:
    return Face(turns, awaited=request.param)
