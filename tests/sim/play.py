"""Plays a seed, or a schedule, to its end: wave after wave until enough has happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol
from urllib.parse import unquote

from tests.sim.choices import Choices
from tests.sim.network import Network
from tests.sim.plan import NONE, Wave, draw_wave
from tests.sim.sweeps import Sweeps
from tests.sim.violation import Violation
from tests.sim.work import Work
from tests.sim.world import FOREVER, World

from giliran import keys

STEPS = 3000
TAIL = 80


class Played(Protocol):
    """What has a history."""

    world: World


class Play:
    """One seed or schedule, its world and what came of it."""

    def __init__(self, seed: int, schedule: Mapping[str, Any] | None = None) -> None:
        self.seed = seed
        self.choices = Choices(seed, schedule)
        self.world = World(self.choices)
        self.network = Network(self.world)
        self.work = Work(self.world)
        self.sweeps = Sweeps(self.world, self.work)
        oracle, broker = self.world.oracle, self.work.broker
        oracle.shelf.carries = broker.carries
        oracle.shelf.repeated = oracle.line.repeated = broker.repeated
        self.waves = 0
        self.slowest = 0.0

    def run(self, steps: int = STEPS) -> Play:
        """Run to the end.

        Raises:
            Violation: if something happened that must not; `choices.taken` is its schedule.
        """
        schedule = self.choices.schedule
        try:
            if schedule is None:
                while self.world.steps < steps:
                    self._wave(self.waves)
            else:
                for number in sorted({_wave_of(name) for name in schedule if _is_job(name)}):
                    self._wave(number)
        except Violation:
            raise
        except Exception as error:
            raise Violation(f"{type(error).__name__}: {error}") from error
        return self

    def _wave(self, number: int) -> None:
        world, wave = self.world, draw_wave(self.choices, number)
        self.waves += 1
        world.rates = replace(wave.rates)
        start = world.time
        for due, message in wave.jobs:
            world.at(start + due, self._publish, message)
        healed_at = start + wave.faulty_for
        world.at(healed_at, self._heal, wave)
        last = max((due for due, _ in wave.jobs), default=0.0)
        self.sweeps.begin(max(healed_at, start + last))
        world.run(healed_at + wave.bound)
        self.slowest = max(self.slowest, (world.time - healed_at) / wave.bound)
        if wave.core_only:
            world.happened["liveness: only a core was healed"] += 1
            world.thaw()
            self.sweeps.begin(world.time)
            world.run(world.time + wave.bound)
        if world.oracle.shelf.unfinished():  # A late request came when all had ended.
            self.sweeps.begin(world.time)
            world.run(world.time + wave.bound)
        self._check_end(wave)

    def _publish(self, message: Any) -> None:
        self.work.broker.publish(message, 0.0)

    def _heal(self, wave: Wave) -> None:
        """The faults stop: everywhere, or for the store and one worker, the rest dead or frozen."""
        world = self.world
        world.note("world", "HEALED, only the core" if wave.core_only else "HEALED")
        world.rates = NONE
        world.server.heal()
        if not wave.core_only:
            for process in world.processes:
                process.cut_until = 0.0
            return
        core, *others = world.processes
        core.paused_until = min(core.paused_until, world.time)
        core.cut_until = 0.0
        for process in others:
            if self.choices.chance(f"{process.name} stays frozen", 0.5):
                world.pause(process, FOREVER)
                self.work.broker.abandon(process)
            else:
                world.crash(process)

    def _check_end(self, wave: Wave) -> None:
        redis, shelf = self.world.server.redis, self.world.oracle.shelf
        if left := shelf.unfinished():
            raise Violation(f"S8: {left} are parked although everything has ended")
        self.work.broker.check_end({unquote(one) for one in shelf.dead | shelf.lost})
        if not shelf.index_lost:
            for key in shelf.lines:
                left = [name for name in keys.line(key) if redis.peek(name) is not None]
                if set(left) - redis.ends.keys():
                    raise Violation(f"S10: {left} are left although everything has ended")
        self._clear_lines()
        back = max(0, -self.world.server.jumped_us) // 1000
        for key in [key for key in list(redis.values) if key.startswith("lock:")]:
            if redis.peek(key) is not None and redis.ends[key] > redis.us // 1000 + 30_000 + back:
                raise Violation(f"L1: {key} is held although everything has ended")

    def _clear_lines(self) -> None:
        """The operator clears what is left after losses."""
        shelf = self.world.oracle.shelf
        for key in shelf.lines:
            for name in (*keys.line(key), keys.due(key)):
                if self.world.server.redis.peek(name) is not None:
                    self.world.server.forget(name)
        shelf.lines.clear()
        shelf.index_lost = False


def _is_job(name: str) -> bool:
    return name.startswith("job ")


def _wave_of(name: str) -> int:
    return int(name.removeprefix("job ").partition(".")[0])


def timeline(play: Played, lines: int = TAIL) -> str:
    """Write the end of a history for people."""
    history = play.world.history
    cut = [f"… {len(history) - lines} lines before"] if len(history) > lines else []
    return "\n".join(
        cut + [f"{time:10.4f}  {who:24} {_line(what)}" for time, who, what in history[-lines:]]
    )


def _line(what: object) -> str:
    if isinstance(what, tuple):
        return " ".join(_line(item) for item in what)
    if hasattr(what, "script"):
        call: Any = what
        return f"-> {call.script.name} {call.args[0][-4:]} within {call.timeout:.2f} s"
    if hasattr(what, "lock_key"):
        event: Any = what
        return f"tells {event.name} {event.result} {event.reason}"
    return str(what)
