"""Many simulated workers in virtual time: processes, their programs, and the scheduler.

The programs are the shipped ones, so are the scripts. `network` carries their calls, `oracle`
watches, `work` is what workers do.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from tests.sim.choices import Choices
from tests.sim.oracle import Oracle
from tests.sim.plan import NONE, Rates
from tests.sim.server import Server
from tests.sim.violation import Violation

from giliran.events import Event
from giliran.holder import parse
from giliran.steps import Call, Emit, Examine, Now, Program, Sleep

FOREVER = float("inf")
STEPS_MAX = 200_000
ROUTES = ("a", "b")
REASONED = frozenset(
    {"lock.lost", "lock.duplicate", "job.gave_up", "job.refused", "job.requeued", "job.called",
     "job.skipped", "job.failed", "record.unrecorded"}
)  # fmt: skip


@dataclass(slots=True, eq=False)
class Process:
    """A worker process: its own clock, its pauses and its end."""

    name: str
    pid: str
    offset: float
    rate: float
    routes: tuple[str, ...]
    paused_until: float = 0.0
    cut_until: float = 0.0
    stood_still: float = -1.0
    dead: bool = False
    actors: dict[int, Actor] = field(default_factory=dict[int, "Actor"])
    parked: list[tuple[Callable[..., None], tuple[Any, ...]]] = field(
        default_factory=list[tuple[Callable[..., None], tuple[Any, ...]]]
    )


@dataclass(slots=True, eq=False)
class Actor:
    """One program that runs in a process, and what it waits for.

    `became` is what the broker said to the last job that it published; `owes` are dead jobs that
    it knows of and has not told yet.
    """

    number: int
    name: str
    process: Process
    program: Program[Any]
    lock_key: str
    turn: int = 0
    steps: int = 0
    calls: int = 0
    over: bool = False
    listens: bool = False
    told: list[Event] = field(default_factory=list[Event])
    became: str = ""
    owes: set[str] = field(default_factory=set[str])
    on_crash: Callable[[], None] | None = None
    on_end: Callable[[], None] | None = None


class World:
    """Runs actors until nothing is left to do.

    Attributes:
        rates: how likely faults are now; none once a wave is healed.
        carriers: what carries a step out of the process; set by network and broker.
        happened: how often each fault and each event occurred.
    """

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.rates: Rates = NONE
        self.time = 0.0
        self.steps = 0
        self.server = Server()
        self.oracle = Oracle(self.server)
        self.happened: Counter[str] = Counter()
        self.history: list[tuple[float, str, object]] = []
        self.carriers: dict[type[Any], Callable[[Actor, Any], None]] = {}
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self._numbers = 0
        self._names = 0
        self.processes: list[Process] = []
        self._drift = choices.chance("clocks drift", 0.5)
        self.proven = choices.chance("proof of death", 0.25)
        count = choices.of("processes", 3, lambda luck: luck.randint(3, 6))
        self.processes = [self._process(self._routes(n)) for n in range(count)]

    # ------------------------------------------------------------------ time

    def at(self, time: float, act: Callable[..., None], *args: Any) -> None:
        """Do something later."""
        self._order += 1
        heapq.heappush(self._heap, (max(time, self.time), self._order, act, args))

    def run(self, ends_at: float) -> None:
        """Go on to quiescence, or to a violation at `ends_at`."""
        heap = self._heap
        while heap:
            time, _, act, args = heapq.heappop(heap)
            self.time = time
            if time > ends_at or self.steps > STEPS_MAX:
                raise Violation(f"L6: not quiet by {time:.0f} s, after {self.steps} steps")
            self.server.tick(time)
            act(*args)

    def note(self, who: str, what: object) -> None:
        """Write a line of the history; formatted only when it is needed."""
        self.history.append((self.time, who, what))

    # ------------------------------------------------------------------ processes

    def _routes(self, number: int) -> tuple[str, ...]:
        """Choose what a process serves; the first one serves all."""
        if not number:
            return ROUTES
        name = f"process {number} serves"
        return tuple(self.choices.of(name, "ab", lambda luck: luck.choice(["ab", "ab", "a", "b"])))

    def _process(self, routes: tuple[str, ...]) -> Process:
        self._names += 1
        name, rate = f"w{self._names}", 1.0
        if self._drift:
            rate = self.choices.of(f"{name} clock", 1.0, _rate)
        return Process(name, str(self._names), 1000.0 * self._names, rate, routes)

    def local(self, process: Process) -> float:
        """Read a process's clock."""
        return process.offset + self.time * process.rate

    def spawn(self, process: Process, name: str, lock_key: str, program: Program[Any]) -> Actor:
        """Start a program now."""
        self._numbers += 1
        actor = Actor(self._numbers, name, process, program, lock_key)
        process.actors[actor.number] = actor
        self.at(self.time, self.resume, actor, 0, None)
        return actor

    def kill(self, actor: Actor) -> None:
        """Stop a program where it stands."""
        actor.over = True
        actor.program.close()
        actor.process.actors.pop(actor.number, None)

    def interrupt(self, actor: Actor, error: BaseException) -> None:
        """Throw into a program that waits, as soon as its process runs."""
        actor.turn += 1
        self.at(self.time, self.resume, actor, actor.turn, error)

    def crash(self, process: Process) -> None:
        """End a process between two steps; another one takes its place."""
        self.happened["crash"] += 1
        self.note(process.name, "CRASH")
        process.dead = True
        self.oracle.dead.add(process.pid)
        self.processes[self.processes.index(process)] = self._process(process.routes)
        for actor in list(process.actors.values()):
            self.kill(actor)
            self.happened["a waiter is killed"] += actor.listens
            if actor.on_crash is not None:
                actor.on_crash()

    def pause(self, process: Process, until: float) -> None:
        """Freeze a process; its clock goes on."""
        self.happened["pause"] += 1
        self.note(process.name, f"PAUSE until {until:.3f}")
        process.paused_until, process.stood_still = until, self.time

    def freezes(self, actor: Actor, step: Any) -> bool:
        """Perhaps freeze a process before a step with which others should not wait for it."""
        seconds = self.choices.of(
            f"{actor.name} freezes", 0.0, lambda luck: _frozen(luck, self.rates.frozen)
        )
        if seconds:
            self.pause(actor.process, self.time + seconds)
            self._when_awake(actor.process, self._again, actor, actor.turn, step)
        return seconds > 0

    def thaw(self) -> None:
        """Let every process go on."""
        for process in self.processes:
            process.paused_until = min(process.paused_until, self.time)
            parked, process.parked = process.parked, []
            for act, args in parked:
                self.at(self.time, act, *args)

    def _when_awake(self, process: Process, act: Callable[..., None], *args: Any) -> None:
        if process.paused_until == FOREVER:
            process.parked.append((act, args))
        else:
            self.at(process.paused_until, act, *args)

    def _strike(self, actor: Actor) -> bool:
        """Perhaps crash or pause the process between two steps; True if the actor is dead."""
        rates = self.rates
        actor.steps += 1
        likely = rates.crash + rates.pause
        struck = self.choices.rarely(
            actor.name, actor.steps, likely, lambda luck: _strike(luck, rates.crash / likely)
        )
        if struck is None:
            return False
        if struck < 0:
            self.crash(actor.process)
            return True
        self.pause(actor.process, self.time + struck)
        return False

    # ------------------------------------------------------------------ programs

    def resume(self, actor: Actor, turn: int, answer: Any) -> None:
        """Answer the step an actor waits for; an exception is thrown in."""
        if actor.over or actor.turn != turn:
            return
        if actor.process.paused_until > self.time:
            self._when_awake(actor.process, self.resume, actor, turn, answer)
            return
        actor.turn += 1
        try:
            step = (
                actor.program.throw(answer)
                if isinstance(answer, BaseException)
                else actor.program.send(answer)
            )
            self._perform(actor, step)
        except StopIteration:
            self._end(actor)
        self.oracle.check_trust(actor.lock_key)

    def _end(self, actor: Actor) -> None:
        """A program is through."""
        if actor.owes:
            raise Violation(f"S8: {actor.name} tells nobody that {actor.owes} are dead")
        self.kill(actor)
        if actor.on_end is not None:
            actor.on_end()

    def _perform(self, actor: Actor, step: Any) -> None:
        """Answer what needs no time, until a step has to wait."""
        process = actor.process
        while True:
            self.steps += 1
            if self._strike(actor):
                return
            if process.paused_until > self.time and not isinstance(step, Call):
                # Frozen before the step took place.
                self._when_awake(process, self._again, actor, actor.turn, step)
                return
            if isinstance(step, Now):
                step = actor.program.send(self.local(process))
            elif isinstance(step, Emit):
                self._tell(actor, step.event)
                step = actor.program.send(None)
            elif isinstance(step, Sleep):
                until = (step.until - process.offset) / process.rate
                self.at(max(self.time, until), self.resume, actor, actor.turn, None)
                return
            elif isinstance(step, Examine):
                dead = parse(step.told).get("pid") in self.oracle.dead
                self.happened["examined, and alive"] += not dead
                step = actor.program.send(dead)
            elif process.paused_until > self.time and actor.steps % 2:
                self._when_awake(process, self._again, actor, actor.turn, step)
                return  # Frozen before the request left; else the request is on its way.
            else:
                actor.calls += isinstance(step, Call)
                self.carriers[type(step)](actor, step)
                return

    def _again(self, actor: Actor, turn: int, step: Any) -> None:
        if actor.over or actor.turn != turn:
            return
        if actor.process.paused_until > self.time:
            self._when_awake(actor.process, self._again, actor, turn, step)
            return
        try:
            self._perform(actor, step)
        except StopIteration:
            self._end(actor)
        self.oracle.check_trust(actor.lock_key)

    def _tell(self, actor: Actor, event: Event) -> None:
        actor.told.append(event)
        if event.name == "job.dead":
            actor.owes.discard(event.fields["publication"])
        self.happened[event.name] += 1
        if event.reason and event.name in REASONED:
            self.happened[f"{event.name}: {event.reason}"] += 1
        self.note(actor.name, event)


def sleep(world: World, process: Process, seconds: float) -> Generator[Any, Any, None]:
    """A pause in a body."""
    yield Sleep(world.local(process) + seconds)


def _rate(luck: random.Random) -> float:
    return luck.choice([0.995, 1.0, 1.005])


def _strike(luck: random.Random, deadly: float) -> float:
    """Draw how long a process stands still; -1 if it dies."""
    return -1.0 if luck.random() < deadly else 0.05 * 2000.0 ** luck.random()


def _frozen(luck: random.Random, rate: float) -> float:
    """Draw for how long a process stands still; 0 for not."""
    return round(luck.uniform(0.1, 120.0), 3) if luck.random() < rate else 0.0
