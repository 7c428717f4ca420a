"""What simulated workers do: deliveries, bodies, their ends, and a queue that delivers again."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Generator
from dataclasses import replace
from typing import Any

from tests.sim.oracle import Violation
from tests.sim.plan import Message, draw
from tests.sim.world import Actor, Process, World, sleep

from giliran import programs
from giliran.attempt import Attempt, Ended, PutBack, Raised, Returned, Rules, Run
from giliran.errors import LeaseInterrupt
from giliran.holder import Claimant
from giliran.lease import Lease
from giliran.results import Codec
from giliran.steps import Program
from giliran.store import Ask

PATIENCE = 5.0
OUTCOMES = frozenset(
    {
        "job.ran", "job.failed", "job.crashed", "job.replayed", "job.skipped", "job.gave_up",
        "job.refused",
    }
)  # fmt: skip
ENDS = OUTCOMES | {"job.requeued", "lock.duplicate"}
CODEC = Codec(lambda: int)


class BodyError(Exception):
    """The job's own failure."""


class Work:
    """One seed: its world, its queue and its sinks."""

    def __init__(self, seed: int) -> None:
        luck = random.Random(seed)
        self.plan = draw(luck)
        self.world = World(seed, self.plan, luck)
        self.luck = luck
        self.outcomes: dict[str, list[str]] = defaultdict(list)
        self.applied: dict[str, int] = {}  # the transactional sink: key -> fence
        self.newest: dict[str, int] = defaultdict(int)  # resource -> largest fence seen
        self.deliveries = 0
        self._tokens = 0

    def run(self) -> None:
        """Run the seed to its end and look at what is left.

        Raises:
            Violation: if something happened that must not.
        """
        for due, message in self.plan.jobs:
            self.world.at(due, self.deliver, message)
        self.world.run()
        self._check_end()

    # ------------------------------------------------------------------ the queue

    def deliver(self, message: Message) -> None:
        """Hand a message to some worker; perhaps a copy of it to another one."""
        world, luck = self.world, self.luck
        self.deliveries += 1
        if world.rates.copy and not message.plain and luck.random() < world.rates.copy:
            world.at(world.time + luck.uniform(0.0, 40.0), self.deliver, message)
        process = luck.choice(world.processes)
        lock_key, name = message.task.lock_key, message.publication
        holder: list[Actor] = []
        actor = world.spawn(process, name, lock_key, self._delivery(process, message, holder))
        holder.append(actor)
        actor.on_crash = lambda: self._redeliver(message)

    def _redeliver(self, message: Message) -> None:
        """What was not acked comes again."""
        if message.plain:
            self.outcomes[message.publication].append("crashed with its caller")
            return
        self.world.at(self.world.time + self.luck.uniform(0.1, 30.0), self.deliver, message)

    def _end(self, actor: Actor, message: Message, ended: Ended, token: str) -> None:
        told = [event.name for event in actor.told if event.name in ENDS]
        if message.plain and not told:
            told = ["lost"]  # It raises LeaseLost to its caller.
        if len(told) != 1:
            raise Violation(f"a delivery of {message.publication} was told to end as {told}")
        losses = [e.reason for e in actor.told if e.name == "lock.lost"]
        denied = not self.world.oracle.data_lost and token in self.world.oracle.finished
        if denied and losses and losses[0] in ("expired", "taken"):
            raise Violation(f"{actor.name} was told {losses[0]}, but its finish had been applied")
        if isinstance(ended, PutBack):
            if ended.delay <= 0:
                raise Violation(f"{message.publication} was put back without a delay")
            again = replace(message, carried=ended.carried)
            self.world.at(self.world.time + ended.delay, self.deliver, again)
            return
        self.outcomes[message.publication].append(told[0])
        if told[0] == "job.ran" and message.effect not in self.applied:
            raise Violation(f"{message.publication} was reported as run without an effect")

    # ------------------------------------------------------------------ one delivery

    def _delivery(
        self, process: Process, message: Message, holder: list[Actor]
    ) -> Generator[Any, Any, None]:
        self._tokens += 1
        token = f"{self._tokens:032x}"
        task = message.task
        claimant = Claimant(message.publication, message.job_id, "task", "q", "host=h;pid=1")
        attempt = Attempt(
            Ask(task.lock_key, token, task.timeouts, claimant, message.memory),
            Rules(task.policy, task.recoveries, CODEC, (BodyError,) * task.remembers),
            None if message.plain else message, task.lock_key,
            lambda: self.world.time + process.offset, self.luck.random,
        )  # fmt: skip
        verdict = yield from attempt.open(PATIENCE)
        actor = holder[0]
        self._settle_debt(process, attempt)
        if isinstance(verdict, Run):
            verdict = yield from self._run(actor, message, attempt, verdict.lease)
            self._settle_debt(process, attempt)
        self._end(actor, message, verdict, token)

    def _run(
        self, actor: Actor, message: Message, attempt: Attempt, lease: Lease
    ) -> Program[Ended]:
        world, oracle, process = self.world, self.world.oracle, actor.process
        deaf = self.luck.random() < world.rates.deaf
        if oracle.confirmed[message.effect] and not lease.lost and not oracle.data_lost:
            raise Violation(f"S6r: {message.publication} runs although that is done")
        oracle.begin(lease)
        redeliver = actor.on_crash

        def crashed() -> None:
            oracle.end(lease)
            if redeliver is not None:
                redeliver()

        actor.on_crash = crashed
        keep = programs.keep(lease, attempt.event("lock.acquired"))
        keeper = world.spawn(process, f"{message.publication} keep", lease.key, keep)
        keeper.patient, keeper.told = False, actor.told
        if not deaf:
            keeper.on_end = lambda: world.interrupt(actor, LeaseInterrupt(lease.key))
        outcome: Returned | Raised
        try:
            outcome = Returned((yield from self._body(process, message, lease)))
        except (LeaseInterrupt, BodyError) as error:
            outcome = Raised(error)
        world.kill(keeper)
        oracle.end(lease)
        actor.on_crash = redeliver
        effects = oracle.effects[message.effect]
        ended = yield from attempt.close(lease, outcome)
        done = any(event.name == "job.ran" for event in actor.told)
        unrecorded = any(event.name == "record.unrecorded" for event in actor.told)
        if done and effects and not unrecorded:
            oracle.confirmed[message.effect] += 1
        return ended

    def _body(self, process: Process, message: Message, lease: Lease) -> Generator[Any, Any, int]:
        share = self.luck.random()
        yield from sleep(self.world, process, message.length * share)
        if self.luck.random() < self.world.rates.raises:
            raise BodyError
        self._effect(message.effect, lease)
        yield from sleep(self.world, process, message.length * (1 - share))
        return 1

    def _effect(self, name: str, lease: Lease) -> None:
        self.world.note("sink", f"effect of {name} with fence {lease.fence}")
        self.world.oracle.effects[name] += 1
        if lease.fence < self.newest[lease.key]:
            raise BodyError("the sink has seen a newer fence")
        self.newest[lease.key] = lease.fence
        self.applied.setdefault(name, lease.fence)

    def _settle_debt(self, process: Process, attempt: Attempt) -> None:
        if attempt.owed is not None:
            debt = programs.abandon(attempt.ask, attempt.owed)
            self.world.spawn(process, "abandon", attempt.ask.lock_key, debt)

    # ------------------------------------------------------------------ the end

    def _check_end(self) -> None:
        oracle = self.world.oracle
        for _, message in self.plan.jobs:
            if not self.outcomes[message.publication]:
                raise Violation(f"S8: {message.publication} disappeared without an outcome")
        for name, times in oracle.confirmed.items():
            # Every other effect belongs to an attempt that crashed, lost its lease or raised.
            if times > 1 and not oracle.data_lost:
                raise Violation(f"S6r: {name} took effect {times} times, each one confirmed")
        self.world.redis.us += 60_000_000 + self.world.set_back_us
        left = [
            m.task.lock_key for _, m in self.plan.jobs if self.world.redis.peek(m.task.lock_key)
        ]
        if left:
            raise Violation(f"L1: still held after everything has ended: {left}")


def timeline(work: Work) -> str:
    """Write the end of a seed's history for people."""
    return "\n".join(
        f"{time:10.4f}  {who:18} {_line(what)}" for time, who, what in work.world.history
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


def play(seed: int) -> Work:
    """Run one seed.

    Raises:
        Violation: with the seed and the end of its history.
    """
    work = Work(seed)
    try:
        work.run()
    except Exception as error:
        raise Violation(f"seed {seed}: {error!r}\n{work.plan.rates}\n{timeline(work)}") from error
    return work
