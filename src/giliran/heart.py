"""The heartbeat: one thread that keeps all leases of a process and tells bodies of a loss.

It runs the program `keep` of every lease, sends the renewals that are due together as one
pipeline on a connection of its own, and never waits for Redis beyond the next deadline. No user
or adapter code runs here, so a blocked event loop or a slow listener loses no lease.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from redis import exceptions

from giliran.beats import Beat, Flight, Timers
from giliran.connect import Address
from giliran.drive import Driver
from giliran.errors import StoreUnavailable
from giliran.interrupt import Gate, refuse_eventlet, relay, under_gevent
from giliran.lease import Lease
from giliran.steps import Call, Emit, Now, Program, Sleep, Step
from giliran.transport import full, short, translate

_log = logging.getLogger("giliran")

NAME = "giliran-heartbeat"
BATCH = 200
GLANCE = 0.05  # How often a wait for replies looks at deadlines and new leases, in seconds.
LOOK = 1.0  # A lock's timeout stands still in suspend, the clock of leases does not.
CALM = 60  # So many looks without a lease, then it rests until it is rung for.
IDLE = 3600.0


def native(name: str) -> Any:
    """Find a primitive of `_thread` as the interpreter made it, whatever gevent has replaced."""
    if under_gevent():
        return sys.modules["gevent.monkey"].get_original("_thread", name)
    return getattr(sys.modules["_thread"], name)


class Heart:
    """Keeps leases alive. `begin` and `stop` are cheap and need no round trip."""

    def __init__(self, address: Address, driver: Driver) -> None:
        refuse_eventlet()
        self._address, self._driver = address, driver
        self._reset()

    def _reset(self) -> None:
        allocate: Callable[[], Any] = native("allocate_lock")
        self.lock: Callable[[], Any] = allocate
        self._mutex: Any = allocate()
        self._bell: Any = allocate()
        self._bell.acquire()
        self._timers = Timers()
        self._wakes_at = float("inf")
        self._calm = 0
        self._running = False
        self._closed = False
        self._connection: Any = None
        self._outbox: list[Beat] = []
        self._flight: Flight | None = None
        self._relay: Callable[..., object] = relay()

    def after_fork(self) -> None:
        """Start clean in a child: its parent's leases are not its own."""
        self._reset()

    def begin(self, lease: Lease, gate: Gate, program: Program[None]) -> Beat:
        """Keep a lease from now on."""
        beat = Beat(lease, gate, program)
        step = self._to_next_wait(beat, lambda: next(program))
        with self._mutex:
            self._closed = False
            if not isinstance(step, Sleep):
                raise AssertionError(f"keep must begin with a sleep, not {step!r}")  # noqa: TRY004
            self._timers.push(step, beat)
            ring = step.until < self._wakes_at
            if not self._running:
                self._running = True
                self._relay = relay()
                self._start()
            elif ring:
                self._ring()
        return beat

    def _start(self) -> None:
        if under_gevent():  # A patched thread is a greenlet, starved by any body that computes.
            native("start_new_thread")(self._main, ())
        else:
            threading.Thread(target=self._main, name=NAME, daemon=True).start()

    def stop(self, beat: Beat) -> None:
        """Keep a lease no longer; its body can be interrupted no more once its gate is closed."""
        beat.over = True

    @property
    def running(self) -> bool:
        """Whether the thread has been needed so far."""
        return self._running

    def wake(self) -> None:
        """Let the thread go around once more, now."""
        with self._mutex:
            self._ring()

    def close(self) -> None:
        """End the thread soon; leases are left to expire."""
        with self._mutex:
            self._closed = self._running
            self._ring()

    def _ring(self) -> None:
        if self._bell.locked():
            self._bell.release()

    # ------------------------------------------------------------------ in the thread

    def _main(self) -> None:
        try:
            while not self._over():
                try:
                    self.beat()
                except Exception as error:  # It must not stop: every lease would be lost with it.
                    self._complain("the heartbeat met an error it does not know; it goes on", error)
                    self._drop(error)
        except BaseException:  # Left with this thread by somebody; the next lease starts another.
            with self._mutex:
                self._running = False
            raise

    def _over(self) -> bool:
        """Tell whether the thread ends; a lease that begins later starts a new one."""
        with self._mutex:
            if not self._closed:
                return False
            connection, self._connection = self._connection, None
            self._timers, self._outbox, self._flight = Timers(), [], None
            self._running = self._closed = False
        if connection is not None:
            connection.disconnect()
        return True

    def beat(self) -> None:
        """Go once around: let programs on, send what is due, take replies or rest."""
        instant = self._driver.clock()
        with self._mutex:
            due = self._timers.due(instant)
        for beat in due:
            if not beat.over:
                self._go_on(beat, None)
        if self._flight is None and self._outbox:
            self._depart()
        if self._flight is not None:
            self._receive(self._flight)
        elif not self._outbox:
            self._rest()

    def _drop(self, error: Exception) -> None:
        """Close the connection; renewals in flight count as unanswered."""
        connection, self._connection = self._connection, None
        flight, self._flight = self._flight, None
        if connection is not None:
            connection.disconnect()
        if flight is not None:
            failure = translate(error, str(self._address))
            for beat in flight.beats[flight.answered :]:
                if not beat.over:
                    self._go_on(beat, failure)

    def _rest(self) -> None:
        with self._mutex:
            instant = self._driver.clock()
            pause = self._timers.next_at() - instant
            self._calm = 0 if self._timers.heap else self._calm + 1
            # To be rung for costs whoever begins a lease more than a look costs here.
            pause = min(pause, LOOK if self._calm < CALM else IDLE)
            self._wakes_at = instant + pause
        if pause > 0:
            self._bell.acquire(True, pause)  # noqa: FBT003  _thread's locks take no keywords here
        self._wakes_at = 0.0

    def _go_on(self, beat: Beat, answer: object) -> None:
        """Advance a beat; a renewal goes to the outbox, a pause to the timers."""
        if isinstance(answer, StoreUnavailable):
            step = self._to_next_wait(beat, lambda: beat.program.throw(answer))
        else:
            step = self._to_next_wait(beat, lambda: beat.program.send(answer))
        if isinstance(step, Call):
            beat.call, beat.answer_by = step, self._driver.clock() + step.timeout
            self._outbox.append(beat)
        elif step is not None:
            with self._mutex:
                self._timers.push(step, beat)

    def _to_next_wait(self, beat: Beat, advance: Callable[[], Step]) -> Call[Any] | Sleep | None:
        """Run a program up to where it waits; None if the lease is lost."""
        try:
            step = advance()
            while isinstance(step, Now | Emit):
                step = beat.program.send(self._at_once(step))
            if not isinstance(step, Call | Sleep):
                raise AssertionError(f"the heartbeat cannot {step!r}")  # noqa: TRY004
        except StopIteration:
            pass
        except Exception as error:  # Fail closed: a lease that nobody keeps is lost.
            self._complain(f"the lease of {beat.lease.key!r} cannot be kept any more", error)
            beat.lease.lose("unreachable")
        else:
            return step
        self.stop(beat)
        beat.gate.fire()
        return None

    def _at_once(self, step: Now | Emit) -> object:
        if isinstance(step, Emit):
            return self._relay(self._driver.at_once, step)
        return self._driver.at_once(step)

    def _complain(self, message: str, error: Exception) -> None:
        self._relay(partial(_log.error, message, exc_info=error))

    def _depart(self) -> None:
        """Send the most urgent renewals as one pipeline."""
        waiting = sorted(
            (beat for beat in self._outbox if not beat.over), key=lambda beat: beat.answer_by
        )
        beats, self._outbox = waiting[:BATCH], waiting[BATCH:]
        if not beats:
            return
        self._flight = Flight(beats, beats[0].answer_by)
        try:
            connection = self._connection or self._connect(self._flight.answer_by)
            packed = b"".join(self._pack(connection, beat) for beat in beats)
            connection.send_packed_command([packed])
        except (exceptions.RedisError, OSError) as error:
            self._drop(error)

    def _connect(self, answer_by: float) -> Any:
        # Nobody watches deadlines meanwhile, so it must not outlast the first of them.
        with self._mutex:
            trusted = [beat.lease.trusted_until for *_, beat in self._timers.heap]
        ends = min([answer_by, *trusted])
        left = max(0.05, min(1.0, ends - self._driver.clock()))
        connection: Any = self._address.sync_pool().make_connection()
        connection.socket_connect_timeout = connection.socket_timeout = left
        connection.connect()
        self._connection = connection
        return connection

    @staticmethod
    def _pack(connection: Any, beat: Beat) -> bytes:
        call = beat.call
        if call is None:
            raise AssertionError("a beat without a renewal was sent")
        if beat.script_unknown:
            beat.script_unknown = False
            return b"".join(connection.pack_command(*full(call)))
        if beat.packed_for is not call.keys:  # Most leases send the same bytes every time.
            beat.packed = b"".join(connection.pack_command(*short(call)))
            beat.packed_for = call.keys
        return beat.packed

    def _receive(self, flight: Flight) -> None:
        """Take what replies there are, waiting a little."""
        connection = self._connection
        patience = max(0.0, min(GLANCE, self._timers.next_at() - self._driver.clock()))
        try:
            while flight.answered < len(flight.beats):
                left = flight.answer_by - self._driver.clock()
                if left <= 0:
                    raise exceptions.TimeoutError("no reply to a renewal in time")
                if not connection.can_read(min(left, patience)):
                    return
                beat = flight.beats[flight.answered]
                reply = self._read(connection)
                flight.answered += 1
                self._take(beat, reply)
        except (exceptions.ConnectionError, exceptions.TimeoutError, OSError) as error:
            self._drop(error)
        else:
            self._flight = None

    @staticmethod
    def _read(connection: Any) -> Any:
        try:
            return connection.read_response(disable_decoding=True)
        except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
            if isinstance(error, exceptions.BusyLoadingError):
                return error
            raise
        except exceptions.ResponseError as error:
            return error

    def _take(self, beat: Beat, reply: Any) -> None:
        if beat.over or beat.call is None:
            return
        if isinstance(reply, exceptions.NoScriptError):
            beat.script_unknown = True
            self._outbox.append(beat)
        elif isinstance(reply, exceptions.RedisError):
            self._go_on(beat, translate(reply, str(self._address)))
        else:
            self._go_on(beat, beat.call.decode(reply))
