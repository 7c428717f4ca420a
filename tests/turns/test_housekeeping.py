"""The thread for what nobody waits for."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.support.wait import wait_for

from giliran import Giliran
from giliran.drive import Driver
from giliran.housekeeping import Housekeeping
from giliran.steps import Program


@pytest.fixture
def housekeeping(turns: Giliran) -> Iterator[Housekeeping]:
    made = Housekeeping(Driver(turns._transport, lambda _: None))
    yield made
    made.close(5)


def test_what_repeats_goes_on_however_much_there_is_to_do(housekeeping: Housekeeping) -> None:
    sweeps: list[int] = []
    busy = threading.Event()
    busy.set()

    def sweep() -> Program[None]:
        sweeps.append(1)
        return
        yield

    def work() -> Program[None]:
        if busy.is_set():
            housekeeping.submit(work())
        return
        yield

    housekeeping.submit(work())
    housekeeping.repeat(sweep)
    wait_for(lambda: len(sweeps) >= 3, 8)
    busy.clear()
