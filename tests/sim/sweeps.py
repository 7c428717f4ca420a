"""The housekeeping of processes: each looks after the lines whose look is due."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tests.sim.fake_redis import SortedSet
from tests.sim.work import quietly

from giliran import handoff, keys

if TYPE_CHECKING:
    from tests.sim.work import Work
    from tests.sim.world import Actor, Process, World

EVERY = 1.0
IDLE = 10  # Every so many ticks they sweep whether or not it changes something.


class Sweeps:
    """Lets every process sweep about once a second: all at the same moment, or spread.

    Most sweeps that would change nothing are left out: that of a line whose resource is held and
    where nobody is overdue.
    """

    def __init__(self, world: World, work: Work) -> None:
        self.world = world
        self.work = work
        self._running: dict[str, Actor] = {}
        self._spread = world.choices.chance("sweeps spread", 0.5)
        self._number = self._ticks = 0

    def begin(self, until: float) -> None:
        """Sweep until then, and on until nothing is left to be called."""
        self.world.at(self.world.time + EVERY, self._tick, until)

    def _tick(self, until: float) -> None:
        world = self.world
        self._ticks += 1
        for place, process in enumerate(world.processes):
            apart = place / len(world.processes) if self._spread else 0.0
            world.at(world.time + apart, self._sweep, process)
        together = sum(not sweep.over for sweep in self._running.values())
        world.happened["three or more sweep at once"] += together >= 3
        if world.time < until or self.work.broker.busy or world.oracle.shelf.unfinished():
            world.at(world.time + EVERY, self._tick, until)

    def _sweep(self, process: Process) -> None:
        world = self.world
        running = self._running.get(process.name)
        if process.dead or process.paused_until > world.time or (running and not running.over):
            return
        if not any(self._is_due(route) for route in process.routes):
            return
        self._number += 1
        world.happened["sweep"] += 1
        sweep = handoff.sweep(process.routes, self.work.token(), proven=world.proven)
        name = f"{process.name} sweep {self._number}"
        self._running[process.name] = world.spawn(process, name, "", quietly(world, sweep))

    def _is_due(self, route: str) -> bool:
        redis, idle = self.world.server.redis, self._ticks % IDLE == 0
        looks = cast("SortedSet", redis.peek(keys.index(route)[1]) or {})
        now_ms = redis.us // 1000
        return any(at <= now_ms and (idle or self._wanted(key)) for key, at in looks.items())

    def _wanted(self, key: str) -> bool:
        redis = self.world.server.redis
        due = cast("SortedSet | None", redis.peek(keys.due(key)))
        if due and min(due.values()) <= redis.us // 1000:
            return True
        return redis.peek(key) is None and redis.peek(keys.line(key)[0]) is not None
