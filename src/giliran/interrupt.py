"""Telling a running body that its lease is lost: an exception, a signal, a cancelled task.

A gate stands around one body. `fire` acts only while the gate is open, and once it is closed
nothing fired before can arrive any more, so an interrupt never hits the next job.

What is interrupted is the thread, task or greenlet that called the guarded function. Threads,
tasks and processes that the body started go on: it must stop them itself, for instance in a
`finally`, or let them ask `lease.check()`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, ClassVar, Protocol

from giliran.errors import LeaseInterrupt


class Interrupter(Protocol):
    """One way to stop a body. Made in the body's own thread or task; never raises."""

    def fire(self) -> None:
        """Interrupt the body; called from the heartbeat's thread."""
        ...

    def withdraw(self) -> None:
        """Take back an interrupt that has not arrived; called where the body ran."""
        ...


class Flag:
    """Leaves the body alone: it asks `lease.lost` or `lease.check()` itself."""

    def fire(self) -> None:
        """Do nothing."""

    def withdraw(self) -> None:
        """Do nothing."""


class ThreadInterrupt:
    """Raises `LeaseInterrupt` in this thread at its next bytecode; a blocking call ends first."""

    def __init__(self) -> None:
        self._ident = threading.get_ident()

    def fire(self) -> None:
        """Leave the exception with the thread."""
        interrupt = ctypes.py_object(LeaseInterrupt)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._ident), interrupt)

    def withdraw(self) -> None:
        """Let an exception that has not been raised yet arrive here, where it is caught.

        Merely clearing it would leave CPython 3.11 waiting for one for ever; a process that is
        traced then, by a debugger or for coverage, hangs at its next call. One that arrives in a
        destructor is dropped by Python, hence the loop.
        """
        with contextlib.suppress(LeaseInterrupt):
            while threading.get_ident() == self._ident:
                self.fire()


class SignalInterrupt:
    """Raises `LeaseInterrupt` in the main thread by a signal, which also ends a blocking call.

    The signal is SIGURG: the system ignores it unless somebody asks for it, and queues leave it
    alone, so that their own signals (time limits, shutdown, stack dumps) go on as before. One that
    arrives when no body is to be interrupted goes to the handler that was there before, if any.
    """

    SIGNAL: ClassVar = signal.SIGURG
    _pending: ClassVar[set[SignalInterrupt]] = set()
    _before: ClassVar[Any] = None

    def __init__(self) -> None:
        self._main = threading.get_ident()
        here = signal.getsignal(self.SIGNAL)
        if here is not SignalInterrupt._handle:
            SignalInterrupt._before = here
            signal.signal(self.SIGNAL, SignalInterrupt._handle)

    @staticmethod
    def _handle(number: int, frame: FrameType | None) -> None:
        if SignalInterrupt._pending:
            SignalInterrupt._pending.clear()
            raise LeaseInterrupt
        if callable(SignalInterrupt._before):
            SignalInterrupt._before(number, frame)

    def fire(self) -> None:
        """Send the signal to the main thread."""
        SignalInterrupt._pending.add(self)
        signal.pthread_kill(self._main, self.SIGNAL)

    def withdraw(self) -> None:
        """Let a signal that has not arrived yet do nothing."""
        SignalInterrupt._pending.discard(self)


class TaskCancel:
    """Cancels this asyncio task; `withdraw` keeps the loop from cancelling it later."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a guarded coroutine must run in an asyncio task")
        self._task, self._loop = task, asyncio.get_running_loop()
        self._closed = False
        self.cancelled = False

    def fire(self) -> None:
        """Ask the loop to cancel the task."""
        with contextlib.suppress(RuntimeError):  # The loop is closed, and the body with it.
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if not self._closed:
            self.cancelled = self._task.cancel()

    def withdraw(self) -> None:
        """From now on do not cancel; undo a cancellation of ours, so that the task may go on."""
        self._closed = True
        if self.cancelled:
            self.cancelled = False
            self._task.uncancel()


class GreenletKill:
    """Raises `LeaseInterrupt` in this gevent greenlet at its next switch."""

    def __init__(self) -> None:
        import gevent  # noqa: PLC0415  only where the user runs gevent

        self._greenlet: Any = gevent.getcurrent()
        self._loop: Any = gevent.get_hub().loop
        self._closed = False

    def fire(self) -> None:
        """Ask the hub of the greenlet's own thread to raise."""
        self._loop.run_callback_threadsafe(self._kill)

    def _kill(self) -> None:
        if not self._closed:
            self._greenlet.throw(LeaseInterrupt)

    def withdraw(self) -> None:
        """From now on do not raise."""
        self._closed = True


def under_gevent() -> bool:
    """Tell whether gevent has replaced threads in this process."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def refuse_eventlet() -> None:
    """Raise `RuntimeError` where eventlet has replaced threads.

    A heartbeat would be one of its green threads, which any job that computes starves, and nothing
    could interrupt a body.
    """
    patcher = sys.modules.get("eventlet.patcher")
    if patcher is not None and patcher.is_monkey_patched("thread"):
        raise RuntimeError(
            "giliran does not run under eventlet: a job that computes would lose every lease of "
            "its process; use gevent or threads (Celery: --pool gevent)"
        )


def relay() -> Callable[..., object]:
    """Make what a thread of the system's calls functions of others by: `call(function, *args)`.

    Under gevent they run in a greenlet, soon, in the thread that made this. What they lock, such
    as a log handler, is a lock of gevent's: met from another thread it can leave greenlets waiting
    for ever, and keeps that thread waiting for as long as a greenlet computes.
    """
    if not under_gevent():
        return _at_once
    import gevent  # noqa: PLC0415  only where the user runs gevent

    return partial(gevent.get_hub().loop.run_callback_threadsafe, gevent.spawn)


def _at_once(function: Callable[..., object], *args: object) -> object:
    return function(*args)


def for_this_thread() -> Interrupter:
    """Choose the interrupter for a plain function running here."""
    return GreenletKill() if under_gevent() else ThreadInterrupt()


def for_this_worker() -> Interrupter:
    """Choose the interrupter for a job running here: in a main thread it ends a blocking call.

    Only for processes that a queue runs, since it sets a signal handler.
    """
    here = threading.current_thread() is threading.main_thread()
    return SignalInterrupt() if here and not under_gevent() else for_this_thread()


class Gate:
    """Lets an interrupt through while a body runs, and never after."""

    __slots__ = ("_fired", "_lock", "_open", "interrupter")

    def __init__(self, interrupter: Interrupter, lock: Callable[[], Any]) -> None:
        self.interrupter = interrupter
        self._lock = lock()
        self._open = True
        self._fired = False

    @property
    def fired(self) -> bool:
        """Whether the body was interrupted."""
        return self._fired

    def fire(self) -> None:
        """Interrupt the body, once, if it still runs."""
        with self._lock:
            if self._open and not self._fired:
                self._fired = True
                self.interrupter.fire()

    def close(self) -> None:
        """Let nothing through any more. May itself be cut short by an interrupt: call it again."""
        with self._lock:
            self._open = False
        if self._fired:
            self.interrupter.withdraw()
