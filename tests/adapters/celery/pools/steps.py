"""More that a body can do; the workers of the pools import it by their settings."""

from __future__ import annotations

import gc
import logging
import socket
import sys
import threading
import time
from types import FrameType

from greenlet import greenlet  # type: ignore[import-untyped]
from tests.adapters.celery.body import STEPS, write

from giliran import LeaseInterrupt, LeaseLost, current_lease
from giliran.heart import Heart

_log = logging.getLogger("tests")


def doze(seconds: float) -> None:
    """Sleep in short naps, so that an exception left with the thread arrives."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        time.sleep(0.005)


def _swallow(order: str, word: str) -> None:
    try:
        doze(float(word))
    except Exception:
        write(order, "swallowed")


def _endure(order: str, word: str) -> None:
    """Go on, whatever happens: what no body should do."""
    try:
        doze(float(word))
    except LeaseInterrupt:
        write(order, "endured")


def _compute(order: str, word: str) -> None:
    ends = time.monotonic() + float(word)
    while time.monotonic() < ends:
        pass


def _chat(order: str, word: str) -> None:
    """Compute and log, and never switch to another greenlet."""
    ends = time.monotonic() + float(word)
    while time.monotonic() < ends:
        _log.info("computing")


def _rob(order: str, victim: str) -> None:
    """Lose another's lock."""
    STEPS["lose"](victim, "")


def _receive(order: str, word: str) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.recv(1)


def _acquire(order: str, word: str) -> None:
    lock = threading.Lock()
    with lock:
        lock.acquire()


def _check(order: str, word: str) -> None:
    """Print, since a greenlet that writes to the ledger switches, and is interrupted there."""
    try:
        current_lease().check()
    except LeaseLost:
        print(f"{order} was told")
        raise


def _help(order: str, word: str) -> None:
    """Let a thread of the body's own work on beside it."""

    def helper() -> None:
        doze(float(word))
        write(order, "helped")

    threading.Thread(target=helper).start()


def _hearts(order: str, word: str) -> None:
    """Tell how many threads of this process are heartbeats, whatever their greenlets do."""
    suspended = [it.gr_frame for it in gc.get_objects() if isinstance(it, greenlet)]
    frames = {_main_of(frame) for frame in (*sys._current_frames().values(), *suspended)}
    write(order, "hearts", count=len(frames - {None}))


def _main_of(frame: FrameType | None) -> FrameType | None:
    while frame is not None and frame.f_code is not Heart._main.__code__:
        frame = frame.f_back
    return frame


STEPS.update(
    doze=lambda _, word: doze(float(word)),
    excuse=_swallow,
    endure=_endure,
    chat=_chat,
    compute=_compute,
    receive=_receive,
    acquire=_acquire,
    check=_check,
    help=_help,
    hearts=_hearts,
    rob=_rob,
)
