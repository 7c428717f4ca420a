"""How a task is told that its lease is lost, by the pool that runs it."""

from __future__ import annotations

import signal
import threading
from typing import Any, ClassVar

from billiard.process import current_process

from giliran.errors import LeaseInterrupt
from giliran.interrupt import Interrupter, for_this_thread


def for_this_pool() -> Interrupter:
    """A signal in a prefork child, since it ends a blocking call; else what fits the thread."""
    child = current_process().name != "MainProcess"
    if child and threading.current_thread() is threading.main_thread():
        return SignalInterrupt()
    return for_this_thread()


class SignalInterrupt:
    """Raises `LeaseInterrupt` in the main thread by SIGUSR1, billiard's signal for soft limits.

    Unlike an exception left with the thread it ends a blocking system call at once. A signal that
    is not ours goes to the handler that was there before.
    """

    _before: ClassVar[Any] = None
    _pending: ClassVar[set[SignalInterrupt]] = set()
    _stray: ClassVar[int] = 0  # Sent, withdrawn, and not arrived yet.

    def __init__(self) -> None:
        here = signal.getsignal(signal.SIGUSR1)
        if here is not SignalInterrupt._handle:
            SignalInterrupt._before = here
            signal.signal(signal.SIGUSR1, SignalInterrupt._handle)

    @staticmethod
    def _handle(number: int, frame: Any) -> None:
        if SignalInterrupt._pending:
            SignalInterrupt._pending.clear()
            raise LeaseInterrupt
        if SignalInterrupt._stray:
            SignalInterrupt._stray -= 1
        elif callable(SignalInterrupt._before):
            SignalInterrupt._before(number, frame)

    def fire(self) -> None:
        """Send the signal to this process' main thread."""
        SignalInterrupt._pending.add(self)
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, signal.SIGUSR1)

    def withdraw(self) -> None:
        """Let a signal that has not arrived yet do nothing."""
        if self in SignalInterrupt._pending:
            SignalInterrupt._pending.discard(self)
            SignalInterrupt._stray += 1
