"""Jobs of several resources beside others, on one server and in a cluster, under faults.

A small world of its own: its oracle knows leases of many keys, its queue only what these need. A
seed plays one wave; nothing is lost but what an operator breaks.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.sim.choices import Choices
from tests.sim.cluster import Cluster
from tests.sim.network import Network
from tests.sim.plan import NONE, Message
from tests.sim.server import Server
from tests.sim.several_oracle import SeveralOracle
from tests.sim.several_plan import BOUND, FAULTY, JOBS, SEEN, draw_job, draw_rates
from tests.sim.shelf import look
from tests.sim.violation import Violation
from tests.sim.work import CODEC, PATIENCE, quietly
from tests.sim.world import FOREVER, Actor, Process, World, sleep

from giliran import handoff, programs
from giliran.attempt import Attempt
from giliran.errors import LeaseInterrupt, LeaseLost
from giliran.holder import Claimant
from giliran.jobs import Carried
from giliran.policies import Wait
from giliran.steps import Call, Emit, Listen, Program, Publish, Sleep
from giliran.store import Ask
from giliran.verdicts import Parked, PutBack, Raised, Returned, Rules, Run

if TYPE_CHECKING:
    from giliran.lease import Lease


@dataclass(slots=True)
class Delivery:
    """A message in a process; `keys` are the lock keys that it wants."""

    label: str
    message: Message
    keys: tuple[str, ...]
    process: Process


class Several:
    """One seed, its world and what came of it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.choices = Choices(seed)
        self.world = world = World(self.choices)
        luck = self.choices.luck
        self.cluster = luck.random() < 0.5
        world.server = Cluster() if self.cluster else Server()
        self.oracle = world.oracle = SeveralOracle(world.server)
        Network(world)
        world.carriers[Publish] = self._publish_parked
        names = [
            f"{luck.choice(['lock', 'lock', '{user}'])}:{n}" for n in range(luck.randint(3, 5))
        ]
        self.names = names
        self.wanted: dict[str, tuple[str, ...]] = {}
        self.messages: dict[str, Message] = {}
        self.ran: Counter[str] = Counter()
        self.left = self._tokens = self._labels = 0
        self.slowest = 0.0

    def run(self) -> Several:
        """Play the wave to its end.

        Raises:
            Violation: if something happened that must not.
        """
        world, luck = self.world, self.choices.luck
        world.rates = draw_rates(luck)
        for number in range(JOBS):
            at, keys, message = draw_job(luck, f"job {number}", self.names)
            self.wanted[message.publication] = keys
            self.messages[message.publication] = message
            self._deliver_at(at, message)
            if not message.plain and luck.random() < 0.2:
                self._deliver_at(at + luck.uniform(0, 5), message)
        for _ in range(luck.randint(0, 4)):
            world.at(luck.uniform(0, FAULTY), self._break_one)
        world.at(FAULTY, self._heal)
        world.at(1.0, self._tick)
        try:
            world.run(FAULTY + BOUND)
        except Violation:
            raise
        except Exception as error:
            raise Violation(f"{type(error).__name__}: {error}") from error
        self.slowest = (world.time - FAULTY) / BOUND
        return self

    def seen(self) -> Counter[str]:
        """Count what came of jobs of several resources."""
        found = self.world.happened + self.oracle.seen
        return Counter({name: found[name] for name in SEEN})

    # ------------------------------------------------------------------ what happens around

    def _break_one(self) -> None:
        """An operator deletes the lock of one resource that somebody holds."""
        redis = self.world.server.redis
        held = [key for key in self.names if str(redis.peek(key) or "reserved")[:8] != "reserved"]
        if held:
            key = self.choices.luck.choice(held)
            token = str(redis.peek(key))[:32]
            self.world.note("operator", f"breaks {key} of {token}")
            self.world.server.forget(key)
            self.oracle.note_broken(key, token)
            self.world.happened["several: a lock was broken"] += 1

    def _heal(self) -> None:
        world = self.world
        world.note("world", "HEALED")
        world.rates = NONE
        world.server.heal()
        world.thaw()
        for process in world.processes:
            process.cut_until = 0.0

    def _tick(self) -> None:
        """Every process sweeps, until nothing is left to come."""
        world = self.world
        for process in world.processes:
            if process.paused_until <= world.time:
                sweep = handoff.sweep(process.routes, self._token(), proven=world.proven)
                world.spawn(process, f"{process.name} sweep", "", quietly(world, sweep))
        if self.left or any(look(world.server.redis, key).entries for key in self.names):
            world.at(world.time + 1.0, self._tick)

    def _token(self) -> str:
        self._tokens += 1
        return f"{self._tokens:032x}"

    # ------------------------------------------------------------------ the queue

    def _deliver_at(self, time: float, message: Message) -> None:
        self.left += 1
        self.world.at(time, self._deliver, message)

    def _deliver(self, message: Message) -> None:
        world = self.world
        self._labels += 1
        label = f"{message.publication} d{self._labels}"
        able = [p for p in world.processes if p.paused_until < FOREVER and "a" in p.routes]
        process = self.choices.luck.choice(able)
        delivery = Delivery(label, message, self.wanted[message.publication], process)
        holder: list[Actor] = []
        program = self._carry(delivery, holder)
        actor = world.spawn(process, label, " ".join(delivery.keys), program)
        holder.append(actor)
        actor.on_crash = lambda: self._crashed(delivery)

    def _crashed(self, delivery: Delivery, lease: Lease | None = None) -> None:
        self.left -= 1
        if lease is not None:
            self.oracle.end(lease)
        if not delivery.message.plain:
            self._deliver_at(self.world.time + self.choices.luck.uniform(0.1, 5), delivery.message)

    def _publish_parked(self, actor: Actor, step: Publish) -> None:
        told = json.loads(step.payload)
        message = self.messages[told.pop("publication")]
        carried = replace(Carried(**told), rank=step.rank, verdict=step.verdict)
        actor.became = "taken"
        self._deliver_at(self.world.time + 0.01, replace(message, carried=carried))
        self.world.at(self.world.time + 0.002, self.world.resume, actor, actor.turn, None)

    # ------------------------------------------------------------------ one delivery

    def _attempt(self, delivery: Delivery) -> Attempt:
        world, message, token = self.world, delivery.message, self._token()
        task = message.task
        claimant = Claimant(job_type="task", worker=f"host=h;pid={delivery.process.pid}")
        lock_key, *further = delivery.keys
        ask = Ask(lock_key, token, task.timeouts, claimant, message.memory)
        if not message.plain:  # As a guard does.
            ask = replace(ask, claimant=replace(claimant, publication=message.publication))
        if further:
            ask = replace(ask, further=tuple(further))
        elif message.plain or isinstance(task.policy, Wait):
            ask = replace(ask, ticket=token, rank=message.carried.rank)
        else:
            ask = replace(ask, ticket=message.ticket, rank=message.carried.rank)
        return Attempt(
            ask, Rules(task.policy, task.recoveries, CODEC, ()),
            None if message.plain else message, lock_key,
            lambda: world.local(delivery.process), self.choices.luck.random,
            delivery.process.routes, world.proven,
        )  # fmt: skip

    def _carry(self, delivery: Delivery, holder: list[Actor]) -> Generator[Any, Any, None]:
        attempt = self._attempt(delivery)
        verdict = yield from self._watched(attempt)
        actor = holder[0]
        self._settle(delivery, attempt, over=not isinstance(verdict, Run))
        if isinstance(verdict, Run):
            lease = verdict.lease
            self.world.happened["several: in order"] += not lease.together
            outcome = yield from self._body(actor, delivery, attempt, lease)
            verdict = yield from attempt.close(lease, outcome)
            self._settle(delivery, attempt, over=True)
        self._end(actor, delivery, verdict)

    def _watched(self, attempt: Attempt) -> Program[Any]:
        """Claim; who is told that a resource is busy, and who waits for one, holds nothing."""
        program, answered = attempt.open(PATIENCE), True
        step = next(program)
        while True:
            contended = isinstance(step, Emit) and step.event.name == "lock.contended"
            if contended or (isinstance(step, Sleep | Listen) and answered):
                ask = attempt.ask
                self.oracle.check_nothing(ask.token, ask.keys, "and waits for the rest")
                self.world.happened["several: waited"] += bool(ask.further) and not contended
            try:
                answer = yield step
                answered = answered or isinstance(step, Call)
            except Exception as error:
                answered = False
                step = program.throw(error)
                continue
            try:
                step = program.send(answer)
            except StopIteration as stop:
                return stop.value

    def _body(
        self, actor: Actor, delivery: Delivery, attempt: Attempt, lease: Lease
    ) -> Program[Returned | Raised]:
        world, process, length = self.world, delivery.process, delivery.message.length
        keep = programs.keep(lease, attempt.event("lock.acquired"))
        keeper = world.spawn(process, f"{delivery.label} keep", lease.key, keep)
        keeper.told = actor.told
        keeper.on_end = lambda: world.interrupt(actor, LeaseInterrupt(lease.key))
        crashed, began = actor.on_crash, False
        outcome: Returned | Raised
        try:
            lease.check()  # As a term does before its body.
            self.oracle.begin(lease)
            began = True
            actor.on_crash = lambda: self._crashed(delivery, lease)
            yield from sleep(world, process, length / 2)
            lease.check()
            self.oracle.write(lease)
            yield from sleep(world, process, length / 2)
            outcome = Returned(1)
        except (LeaseInterrupt, LeaseLost) as error:
            outcome = Raised(error)
        world.kill(keeper)
        self.oracle.closed.add(lease.token)
        if began:
            self.oracle.end(lease)
        actor.on_crash = crashed
        return outcome

    def _settle(self, delivery: Delivery, attempt: Attempt, *, over: bool) -> None:
        """Housekeeping does in the background what a call leaves to it."""
        owed, ask = attempt.owed is not None, attempt.ask
        for number, debt in enumerate(debts := attempt.settle()):
            actor = self.world.spawn(
                delivery.process, f"{delivery.label} debt {number}", "", quietly(self.world, debt)
            )
            if owed and debt is debts[-1]:
                actor.on_end = partial(self._given_back, ask, self.world.time)
        if over and not owed:
            self.oracle.check_nothing(ask.token, ask.keys, "after its end")

    def _given_back(self, ask: Ask, since: float) -> None:
        if self.world.time < since + 0.9 * ask.timeouts.ttl:
            self.oracle.check_nothing(ask.token, ask.keys, "after it was given back")

    def _end(self, actor: Actor, delivery: Delivery, ended: Any) -> None:
        message = delivery.message
        self.left -= 1
        if len(delivery.keys) > 1:
            for event in actor.told:
                self.world.happened[f"several: {event.name}"] += 1
            self.world.happened["several: reclaimed"] += any(
                event.name == "lock.reclaimed" for event in actor.told
            )
        self.ran[message.publication] += any(event.name == "job.ran" for event in actor.told)
        if message.memory.kind and self.ran[message.publication] > 1:
            raise Violation(f"S6: {message.publication} was reported as run twice")
        if isinstance(ended, PutBack):
            again = replace(message, carried=ended.carried)
            self._deliver_at(self.world.time + ended.delay, again)
        elif isinstance(ended, Parked) and len(delivery.keys) > 1:
            raise Violation(f"{message.publication} wants several resources, and is parked for one")
