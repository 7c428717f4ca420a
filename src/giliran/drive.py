"""Runs programs: in a thread, in an event loop. The only place, with the heartbeat, that waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar, assert_never

from giliran import worker
from giliran.errors import NotPublished, StoreUnavailable
from giliran.events import Listener
from giliran.holder import parse
from giliran.steps import Call, Emit, Examine, Listen, Now, Program, Publish, Sleep, Step
from giliran.transport import Transport

R = TypeVar("R")

# Read from the system, not `time.monotonic`: it goes on while the machine is suspended, and
# libraries that freeze time for tests do not reach it.
_BOOT = getattr(time, "CLOCK_BOOTTIME", None)


def boot_clock() -> float:
    """Read the local clock in seconds; it never jumps and does not stop in suspend."""
    return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)


def _nowhere(step: Publish) -> None:
    raise NotPublished(f"no queue here is called {step.route!r}")


class Driver:
    """Runs programs against one transport, with one clock and one listener.

    `publish` publishes parked jobs; it raises `NotPublished`.
    """

    def __init__(
        self,
        transport: Transport,
        listener: Listener,
        clock: Callable[[], float] = boot_clock,
        publish: Callable[[Publish], None] = _nowhere,
    ) -> None:
        self.transport = transport
        self.clock = clock
        self.listener = listener
        self.publish = publish

    def run(self, program: Program[R]) -> R:
        """Run a program in this thread."""
        try:
            step: Step = next(program)
            while True:
                try:
                    answer = self._do(step)
                except (StoreUnavailable, NotPublished) as error:
                    step = program.throw(error)
                else:
                    step = program.send(answer)
        except StopIteration as stop:
            result: R = stop.value
            return result

    async def arun(self, program: Program[R]) -> R:
        """Same as `run`, awaited."""
        try:
            step: Step = next(program)
            while True:
                try:
                    answer = await self._ado(step)
                except (StoreUnavailable, NotPublished) as error:
                    step = program.throw(error)
                else:
                    step = program.send(answer)
        except StopIteration as stop:
            result: R = stop.value
            return result

    def _do(self, step: Step) -> Any:
        match step:
            case Call():
                return self.transport.send(step)
            case Sleep(until):
                time.sleep(max(0.0, until - self.clock()))
                return None
            case Listen(key, until):
                return self.transport.listen(key, until - self.clock())
            case Publish():
                return self.publish(step)
            case Examine(told):
                return worker.is_dead(parse(told))
            case _:
                return self.at_once(step)

    async def _ado(self, step: Step) -> Any:
        match step:
            case Call():
                return await self.transport.asend(step)
            case Sleep(until):
                await asyncio.sleep(max(0.0, until - self.clock()))
                return None
            case Listen(key, until):
                return await self.transport.alisten(key, until - self.clock())
            case Publish():
                return await asyncio.to_thread(self.publish, step)
            case Examine(told):
                return worker.is_dead(parse(told))
            case _:
                return self.at_once(step)

    def at_once(self, step: Now | Emit) -> float | None:
        """Answer the steps that wait for nothing."""
        match step:
            case Now():
                return self.clock()
            case Emit(event):
                self.listener(event)
                return None
            case _:
                assert_never(step)
