"""Faults on command for a running guard: a lost lease, a silent heartbeat, a clock that jumps."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator

import redis

from giliran.turns import Giliran


def lose_lease(url: str, key: str, *, to: str | None = None) -> None:
    """Take the lock `key` from its holder on a real server, as eviction or an operator would.

    Args:
        url: where Redis is.
        key: the lock key as stored.
        to: who has it then; None leaves it free. Another holder keeps it for 30 s.

    Raises:
        LookupError: if nobody holds it.
    """
    with contextlib.closing(redis.Redis.from_url(url)) as client:
        if not client.delete(key):
            raise LookupError(f"nobody holds {key!r}")
        if to is not None:
            client.set(key, to, px=30_000)


@contextlib.contextmanager
def pause_heartbeat(turns: Giliran) -> Generator[None, None, None]:
    """Let the heartbeat of `turns` stand still in this block, as in a frozen process.

    Nothing is renewed and no body is told; `lease.check()` and `lease.lost` know all the same.
    """
    heart = turns.heartbeat
    going_on = threading.Event()
    standing = threading.Event()
    beat = heart.beat

    def stand_still() -> None:
        standing.set()
        going_on.wait()

    heart.beat = stand_still  # type: ignore[method-assign]
    heart.wake()
    try:
        if heart.running and not standing.wait(5):
            raise AssertionError("the heartbeat did not stop; is it running?")
        yield
    finally:
        heart.beat = beat  # type: ignore[method-assign]
        going_on.set()


class Clock:
    """A local clock that a test steps. Made by `stepped_clock`."""

    def __init__(self, real: Callable[[], float], stepped: Callable[[], None]) -> None:
        self._real = real
        self._stepped = stepped
        self._ahead = 0.0

    def __call__(self) -> float:
        """Read it, in seconds."""
        return self._real() + self._ahead

    def step(self, seconds: float) -> None:
        """Let time pass at once, for this process only: leases that are not renewed run out."""
        self._ahead += seconds
        self._stepped()


@contextlib.contextmanager
def stepped_clock(turns: Giliran) -> Generator[Clock, None, None]:
    """Give `turns` a clock that the test can step, in this block; Redis' own time goes on."""
    real = turns.clock
    turns.clock = clock = Clock(real, turns.heartbeat.wake)
    try:
        yield clock
    finally:
        turns.clock = real


def deliver_twice(function: Callable[[], object]) -> list[object]:
    """Call twice at the same moment, as two deliveries of one message; answer what came of each.

    An exception stands in the list in place of a result.
    """
    outcomes: list[object] = [None, None]
    together = threading.Barrier(2)

    def deliver(place: int) -> None:
        together.wait(5)
        try:
            outcomes[place] = function()
        except Exception as error:
            outcomes[place] = error

    threads = [threading.Thread(target=deliver, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes
