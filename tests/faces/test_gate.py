"""An interrupt hits the body it is meant for, or nothing.

The fake store loses leases from another thread at the very moment at which short bodies end.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from giliran import Giliran, LeaseInterrupt, LeaseLost
from giliran.testing import FakeStore, fake

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 1500

# Python drops an interrupt that arrives in a weak reference's callback or in a `__del__`.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def turns() -> Giliran:
    return Giliran("redis://127.0.0.1:1")


@pytest.fixture
def store(turns: Giliran) -> Iterator[FakeStore]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.00002)
    with fake(turns) as store:
        yield store
        turns.close()
    sys.setswitchinterval(interval)


class Thief:
    """Takes the lease of `lock:1` from time to time, in a thread of its own."""

    def __init__(self, store: FakeStore) -> None:
        self._store = store
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._main)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _main(self) -> None:
        while not self._over.is_set():
            beat = self._store._kept.get("lock:1")
            if beat is not None and not beat.lease._lost:
                spin(random.random() * 0.0001)
                self._store.locks.pop("lock:1", None)
                beat.lease.lose("taken")
                beat.gate.fire()
            else:
                spin(0.000005)


def spin(seconds: float) -> None:
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        pass


def outcomes(call: Callable[[], object]) -> dict[str, int]:
    """Call many times, with code in between that an interrupt must not hit."""
    seen = {"returned": 0, "lost": 0}
    for _ in range(ROUNDS):
        try:
            call()
            seen["returned"] += 1
        except LeaseLost:
            seen["lost"] += 1
        spin(0.00005)
    return seen


def test_nothing_is_interrupted_after_a_guarded_function(turns: Giliran, store: FakeStore) -> None:
    @turns.exclusive("lock:{order}")
    def work(order: int) -> None:
        spin(random.random() * 0.0001)

    with Thief(store):
        seen = outcomes(lambda: work(1))
    assert all(seen.values())


def test_nothing_is_interrupted_after_a_block(turns: Giliran, store: FakeStore) -> None:
    def block() -> None:
        try:
            with turns.hold("lock:1"):
                spin(random.random() * 0.0001)
        except LeaseInterrupt as interrupt:
            # Python lets it through as it calls __exit__: see the docstring of Hold.
            if traceback.extract_tb(interrupt.__traceback__)[-1].name != "__exit__":
                raise
            raise LeaseLost("lock:1", "taken") from interrupt

    with Thief(store):
        # A context of its own: what such a moment leaves there is not for other tests.
        seen = contextvars.copy_context().run(outcomes, block)
    assert all(seen.values())


def test_the_bodys_own_error_wins_at_any_moment(turns: Giliran, store: FakeStore) -> None:
    """What leaves is the body's error, or the loss if that came before the body was done."""

    @turns.exclusive("lock:{order}")
    def work(order: int) -> None:
        spin(random.random() * 0.0001)
        raise ValueError(order)

    seen = {"own": 0, "lost": 0}
    with Thief(store):
        for _ in range(ROUNDS):
            try:
                work(1)
            except ValueError:
                seen["own"] += 1
            except LeaseLost:
                seen["lost"] += 1
            spin(0.00005)
    assert all(seen.values())


def test_nothing_is_cancelled_after_a_guarded_coroutine(turns: Giliran, store: FakeStore) -> None:
    @turns.exclusive("lock:{order}")
    async def work(order: int) -> None:
        for _ in range(random.randrange(4)):
            await asyncio.sleep(0)

    async def main() -> dict[str, int]:
        seen = {"returned": 0, "lost": 0}
        task: Any = asyncio.current_task()
        for _ in range(ROUNDS):
            try:
                await work(1)
                seen["returned"] += 1
            except LeaseLost:
                seen["lost"] += 1
            assert task.cancelling() == 0
            await asyncio.sleep(0)
        return seen

    with Thief(store):
        seen = asyncio.run(main())
    assert all(seen.values())


TRACED = """
import sys, threading
from giliran.interrupt import Gate, ThreadInterrupt
from giliran.errors import LeaseInterrupt

gate = Gate(ThreadInterrupt(), threading.Lock)
try:
    gate.fire()
    for _ in range(int(sys.argv[1])):
        pass
except LeaseInterrupt:
    print("interrupted")
gate.close()

def called():
    return "went on"

sys.settrace(lambda *_: None)
print(called())
"""


@pytest.mark.parametrize("rounds", ["0", "1000"], ids=["not arrived", "arrived"])
def test_who_traces_the_process_goes_on(rounds: str) -> None:
    """CPython 3.11 hangs in a traced call for as long as it was promised an interrupt."""
    done = subprocess.run(
        [sys.executable, "-c", TRACED, rounds],
        capture_output=True, text=True, timeout=20, check=True,
    )  # fmt: skip
    assert done.stdout.endswith("went on\n")
