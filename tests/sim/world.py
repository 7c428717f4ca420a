"""Many simulated workers in virtual time under faults: the scheduler and the network.

Everything that decides comes from one seed. The programs are the shipped ones, so are the
scripts; `oracle` watches the store, `work` is what workers do.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from tests.sim.fake_redis import EPOCH_US, FakeRedis
from tests.sim.oracle import Oracle, Violation
from tests.sim.plan import Plan, Rates

from giliran.errors import StoreUnavailable
from giliran.events import Event
from giliran.steps import Call, Emit, Now, Program, Sleep

TAIL = 80


@dataclass(slots=True, eq=False)
class Process:
    """A worker process: its own clock, its pauses and its end."""

    name: str
    offset: float
    paused_until: float = 0.0
    dead: bool = False
    actors: dict[int, Actor] = field(default_factory=dict[int, "Actor"])


@dataclass(slots=True, eq=False)
class Actor:
    """One program that runs in a process, and what it waits for."""

    number: int
    name: str
    process: Process
    program: Program[Any]
    lock_key: str
    turn: int = 0
    over: bool = False
    patient: bool = True  # It may read a reply that came after its deadline.
    told: list[Event] = field(default_factory=list[Event])
    on_crash: Callable[[], None] | None = None
    on_end: Callable[[], None] | None = None


class World:
    """Runs actors until nothing is left to do."""

    def __init__(self, seed: int, plan: Plan, luck: random.Random) -> None:
        self.seed = seed
        self.plan = plan
        self.luck = luck
        self.rates = plan.rates
        self.time = 0.0
        self.steps = 0
        self.redis = FakeRedis()
        self.oracle = Oracle(self.redis)
        self.happened: Counter[str] = Counter()
        self.history: deque[tuple[float, str, object]] = deque(maxlen=TAIL)
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self.set_back_us = 0
        self._numbers = 0
        self._names = 0
        self.processes = [self._process() for _ in range(plan.processes)]

    # ------------------------------------------------------------------ time

    def at(self, time: float, act: Callable[..., None], *args: Any) -> None:
        """Do something later."""
        self._order += 1
        heapq.heappush(self._heap, (time, self._order, act, args))

    def run(self) -> None:
        """Go on to quiescence; faults stop on the way."""
        healed = False
        while self._heap:
            time, _, act, args = heapq.heappop(self._heap)
            self.time = time
            if not healed and time >= self.plan.faults_until:
                healed, self.rates = True, Rates()
                self.note("world", "the faults stop")
            if time > self.plan.ends_at:
                raise Violation(f"not quiet {time - self.plan.faults_until:.0f} s after the faults")
            self.redis.us = EPOCH_US + int(time * 1e6) - self.set_back_us
            act(*args)

    def note(self, who: str, what: object) -> None:
        """Write a line of the history; formatted only when it is needed."""
        self.history.append((self.time, who, what))

    # ------------------------------------------------------------------ processes

    def _process(self) -> Process:
        self._names += 1
        return Process(f"w{self._names}", self.luck.uniform(0.0, 1e5))

    def spawn(self, process: Process, name: str, lock_key: str, program: Program[Any]) -> Actor:
        """Start a program now."""
        self._numbers += 1
        actor = Actor(self._numbers, f"{process.name} {name}", process, program, lock_key)
        process.actors[actor.number] = actor
        self.at(self.time, self._resume, actor, 0, None)
        return actor

    def kill(self, actor: Actor) -> None:
        """Stop a program where it stands."""
        actor.over = True
        actor.process.actors.pop(actor.number, None)

    def interrupt(self, actor: Actor, error: BaseException) -> None:
        """Throw into a program that waits, as soon as its process runs."""
        actor.turn += 1
        self.at(self.time, self._resume, actor, actor.turn, error)

    def crash(self, process: Process) -> None:
        """End a process between two steps; another one takes its place."""
        self.happened["crash"] += 1
        self.note(process.name, "CRASH")
        process.dead = True
        self.processes[self.processes.index(process)] = self._process()
        for actor in list(process.actors.values()):
            self.kill(actor)
            if actor.on_crash is not None:
                actor.on_crash()

    def _strike(self, actor: Actor) -> bool:
        """Perhaps crash or pause the process between two steps; True if the actor is dead."""
        rates, luck = self.rates, self.luck
        if rates.crash and luck.random() < rates.crash:
            self.crash(actor.process)
            return True
        if rates.pause and luck.random() < rates.pause:
            pause = 0.05 * 2000.0 ** luck.random()
            self.happened["pause"] += 1
            self.note(actor.process.name, f"PAUSE {pause:.2f} s")
            actor.process.paused_until = self.time + pause
        return False

    # ------------------------------------------------------------------ programs

    def _resume(self, actor: Actor, turn: int, answer: Any) -> None:
        process = actor.process
        if actor.over or actor.turn != turn:
            return
        if process.paused_until > self.time:
            self.at(process.paused_until, self._resume, actor, turn, answer)
            return
        actor.turn += 1
        try:
            if isinstance(answer, BaseException):
                step: Any = actor.program.throw(answer)
            else:
                step = actor.program.send(answer)
            self._answer(actor, step)
        except StopIteration:
            self.kill(actor)
            if actor.on_end is not None:
                actor.on_end()
        self.oracle.check_trust(actor.lock_key)

    def _answer(self, actor: Actor, step: Any) -> None:
        """Answer what needs no time, until a step has to wait."""
        process = actor.process
        while True:
            self.steps += 1
            if self._strike(actor):
                return
            if process.paused_until > self.time and not isinstance(step, Call):
                # Frozen before the step took place.
                self.at(process.paused_until, self._again, actor, actor.turn, step)
                return
            if isinstance(step, Now):
                step = actor.program.send(self.time + process.offset)
            elif isinstance(step, Emit):
                actor.told.append(step.event)
                self.happened[step.event.name] += 1
                self.note(actor.name, step.event)
                step = actor.program.send(None)
            elif isinstance(step, Sleep):
                until = max(self.time, step.until - process.offset)
                self.at(until, self._resume, actor, actor.turn, None)
                return
            else:
                if process.paused_until > self.time and self.luck.random() < 0.5:
                    self.at(process.paused_until, self._again, actor, actor.turn, step)
                else:
                    self._send(actor, step)
                return

    def _again(self, actor: Actor, turn: int, step: Any) -> None:
        if actor.over or actor.turn != turn:
            return
        if actor.process.paused_until > self.time:
            self.at(actor.process.paused_until, self._again, actor, turn, step)
            return
        try:
            self._answer(actor, step)
        except StopIteration:
            self.kill(actor)
            if actor.on_end is not None:
                actor.on_end()
        self.oracle.check_trust(actor.lock_key)

    # ------------------------------------------------------------------ network

    def _send(self, actor: Actor, call: Call[Any]) -> None:
        rates, luck = self.rates, self.luck
        arrives = self.time + luck.expovariate(1000.0)
        deadline = self.time + call.timeout
        fate = luck.random()
        for name in ("request_lost", "reply_lost", "late_reply", "late_request", "refused"):
            fate -= getattr(rates, name)
            if fate < 0:
                self.happened[name] += 1
                self.note(actor.name, (name, call))
                break
        else:
            name = ""
            self.note(actor.name, call)
        early_end = min(deadline, arrives + 0.01) if luck.random() < 0.5 else deadline
        if name == "refused":
            code = luck.choice(["LOADING", "OOM", "MISCONF"])
            refusal = StoreUnavailable(code, code, ambiguous=False)
            self.at(arrives, self._resume, actor, actor.turn, refusal)
            return
        if name in ("request_lost", "reply_lost", "late_request"):
            self.at(early_end, self._resume, actor, actor.turn, _unanswered())
        if name == "request_lost":
            return
        if name == "late_request":
            arrives = deadline + luck.uniform(0.0, 60.0)
        if rates.doubled and luck.random() < rates.doubled:
            self.happened["doubled"] += 1
            self.at(arrives + luck.uniform(0.0, 60.0), self._apply, None, 0, call, 0.0)
        wanted = actor if name in ("", "late_reply") else None
        back = luck.expovariate(1000.0)
        if name == "late_reply":
            back += luck.uniform(0.0, 2.0 * call.timeout)
        if wanted is not None and not (actor.patient and luck.random() < 0.5):
            self.at(deadline, self._resume, actor, actor.turn, _unanswered())
        self.at(arrives, self._apply, wanted, actor.turn, call, back)

    def _apply(self, actor: Actor | None, turn: int, call: Call[Any], back: float) -> None:
        if self.rates.evict and self.luck.random() < self.rates.evict:
            self.happened["evict"] += 1
            self.note("redis", f"EVICTED {call.keys[0]}")
            self.oracle.lose_data(call.keys[0])
        if self.rates.flush and self.luck.random() < self.rates.flush:
            self.happened["flush"] += 1
            self.note("redis", "FLUSHED")
            self.oracle.lose_data(None)
        if self.rates.step_back and self.luck.random() < self.rates.step_back:
            self.happened["step_back"] += 1
            self.set_back_us += int(self.luck.uniform(0.0, 30e6))
            self.oracle.clock_moved = True
        reply = self.oracle.apply(call)
        self.note("redis" if actor else "redis, late", (call.script.name, call.args[0], reply))
        if actor is not None:
            self.at(self.time + back, self._resume, actor, turn, call.decode(reply))


def _unanswered() -> StoreUnavailable:
    return StoreUnavailable("unreachable", "no answer", ambiguous=True)


def sleep(world: World, process: Process, seconds: float) -> Generator[Any, Any, None]:
    """A pause in a body."""
    yield Sleep(world.time + process.offset + seconds)
