"""Waiting for a condition: the only place in the tests that sleeps."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def wait_for(condition: Callable[[], T], timeout: float = 5.0, message: str = "") -> T:
    """Return the condition's first true value; fail if there is none in time."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(message or f"not within {timeout} s; the last value is {value!r}")
        time.sleep(0.003)
