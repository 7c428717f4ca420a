"""What simulated workers do with a delivery: the attempt, the body, its end, its effects."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import partial
from typing import Any

from tests.sim.broker import Broker, Delivery
from tests.sim.ends import Ends
from tests.sim.plan import BodyError, ControlFlow, TimeLimit
from tests.sim.sinks import Sinks
from tests.sim.world import Actor, World, sleep

from giliran import programs
from giliran.attempt import Attempt
from giliran.errors import LeaseInterrupt, LeaseLost, StoreUnavailable
from giliran.holder import Claimant
from giliran.holder import field as field_of
from giliran.jobs import Carried
from giliran.lease import Lease
from giliran.policies import Wait
from giliran.results import Codec
from giliran.steps import Program
from giliran.store import Ask
from giliran.verdicts import Raised, Returned, Rules, Run

PATIENCE = 5.0
CODEC = Codec(lambda: int)


class Work:
    """Carries out deliveries."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.broker = Broker(world, self._begin)
        self.sinks = Sinks(world)
        self.ends = Ends(world, self.broker, self.sinks)
        self._tokens = 0

    def _begin(self, delivery: Delivery) -> None:
        message = delivery.message
        holder: list[Actor] = []
        actor = self.world.spawn(
            delivery.process, delivery.label, message.task.lock_key, self._carry(delivery, holder)
        )
        holder.append(actor)
        actor.on_crash = lambda: self.broker.crashed(delivery)

    # ------------------------------------------------------------------ one delivery

    def _carry(self, delivery: Delivery, holder: list[Actor]) -> Generator[Any, Any, None]:
        attempt = self._attempt(delivery)
        verdict = yield from attempt.open(PATIENCE)
        actor = holder[0]
        self._settle_debt(delivery, attempt)
        if isinstance(verdict, Run):
            lease = verdict.lease
            outcome = yield from self._run(actor, delivery, attempt, lease)
            verdict = yield from attempt.close(lease, outcome)
            self._settle_debt(delivery, attempt)
        self.ends.end(actor, delivery, attempt, verdict)

    def token(self) -> str:
        """Draw a token."""
        self._tokens += 1
        return f"{self._tokens:032x}"

    def _attempt(self, delivery: Delivery) -> Attempt:
        world, message, task = self.world, delivery.message, delivery.message.task
        token = self.token()
        claimant = Claimant(job_type=message.job_type, worker=f"host=h;pid={delivery.process.pid}")
        timeouts = task.timeouts
        if message.memory.kind == "delivery":
            timeouts = replace(timeouts, retain=max(3600.0, timeouts.ttl))
        ask = Ask(task.lock_key, token, timeouts, claimant, message.memory, ticket=token)
        if not message.plain:  # As a guard does.
            claimant = replace(
                claimant, publication=message.publication, job_id=message.job_id,
                route=message.route,
            )  # fmt: skip
            ask = replace(ask, claimant=claimant, elder=message.elder, rank=message.carried.rank)
            if not isinstance(task.policy, Wait):
                ask = replace(ask, ticket=message.ticket)
            self.world.oracle.line.carried[token] = message.carried.rank
        return Attempt(
            ask,
            Rules(task.policy, task.recoveries, CODEC, (BodyError,) * task.remembers),
            None if message.plain else message, task.lock_key,
            lambda: world.local(delivery.process),
            lambda: world.choices.of(f"{delivery.label} luck", 0.5, lambda luck: luck.random()),
            delivery.process.routes, world.proven,
        )  # fmt: skip

    def _run(
        self, actor: Actor, delivery: Delivery, attempt: Attempt, lease: Lease
    ) -> Program[Returned | Raised]:
        world, oracle, message = self.world, self.world.oracle, delivery.message
        deaf = world.choices.chance(f"{delivery.label} deaf", world.rates.deaf)
        keep = programs.keep(lease, attempt.event("lock.acquired"))
        keeper = world.spawn(delivery.process, f"{delivery.label} keep", lease.key, keep)
        keeper.told = actor.told
        if not deaf:
            keeper.on_end = lambda: world.interrupt(actor, LeaseInterrupt(lease.key))
        began = False
        redeliver = actor.on_crash

        def crashed() -> None:
            oracle.end(lease)
            self.broker.crashed(delivery)

        try:
            lease.check()  # As a term does before its body.
            oracle.begin(lease)
            began = True
            actor.on_crash = crashed
            if message.time_limit is not None:
                limit = world.time + message.time_limit
                world.at(limit, self._time_is_up, actor, lease)
            outcome: Returned | Raised = Returned((yield from self._body(delivery, lease, deaf)))
        except (LeaseInterrupt, LeaseLost, BodyError, ControlFlow, TimeLimit) as error:
            outcome = Raised(error)
            if isinstance(error, TimeLimit):
                oracle.crashed.add(lease.token)
        self._stop_keeper(keeper)
        oracle.closed.add(lease.token)
        if began:
            oracle.end(lease)
        actor.on_crash = redeliver
        return outcome

    def _stop_keeper(self, keeper: Actor) -> None:
        self.world.kill(keeper)

    def _time_is_up(self, actor: Actor, lease: Lease) -> None:
        if not actor.over and lease.token not in self.world.oracle.closed:
            self.world.happened["time limit"] += 1
            self.world.interrupt(actor, TimeLimit())

    def _body(self, delivery: Delivery, lease: Lease, deaf: bool) -> Generator[Any, Any, int]:
        world, message, process = self.world, delivery.message, delivery.process
        share = world.choices.of(f"{delivery.label} share", 0.5, lambda luck: luck.random())
        yield from sleep(world, process, message.length * share)
        rates = world.rates
        end = world.choices.of(
            f"{delivery.label} ends", "", lambda luck: _ending(luck.random(), rates)
        )
        if end == "raises":
            raise BodyError(lease.fence % 10**9)
        if end == "retry" and not message.plain:
            self._retry(delivery)
        if end:
            world.happened["control flow"] += 1
            raise ControlFlow(end)
        if not deaf:
            self.sinks.write_checked(lease)
        self.sinks.write_fenced(message.effect, lease)
        value = self.sinks.insert(message.effect, lease)
        yield from sleep(world, process, message.length * (1 - share))
        return value

    def _retry(self, delivery: Delivery) -> None:
        """The framework publishes the job again under a new name, then ends this delivery."""
        message, world = delivery.message, self.world
        world.happened["retry"] += 1
        pause = world.choices.of(
            f"{delivery.label} retry", 0.01, lambda luck: 5 * luck.random() ** 3
        )
        memory = message.memory
        publication = f"{delivery.label} retry"
        if memory.kind == "delivery":
            memory = replace(memory, name=field_of(publication))
        again = replace(
            message, publication=publication, elder=message.publication, memory=memory,
            carried=Carried(),
        )  # fmt: skip
        self.broker.publish(again, pause)

    # ------------------------------------------------------------------ debts

    def _settle_debt(self, delivery: Delivery, attempt: Attempt) -> None:
        """Housekeeping does in the background what a call leaves to it."""
        world, ask, owed = self.world, attempt.ask, attempt.owed is not None
        held = world.server.redis.peek(ask.lock_key)
        for number, debt in enumerate(debts := attempt.settle()):
            actor = world.spawn(
                delivery.process, f"{delivery.label} debt {number}", ask.lock_key,
                quietly(world, debt),
            )  # fmt: skip
            if owed and debt is debts[-1]:
                world.happened["abandon"] += 1
                world.happened["abandon of a lease that was ours"] += isinstance(
                    held, str
                ) and held.startswith(ask.token)
                self.ends.owed.add(ask.token)
                actor.on_end = partial(self.ends.check_abandoned, ask, world.time)


def quietly(world: World, program: Program[None]) -> Program[None]:
    """Run what nobody waits for: without an answer it ends, as in the housekeeping thread."""
    try:
        yield from program
    except StoreUnavailable:
        world.happened["housekeeping gave up"] += 1


def _ending(drawn: float, rates: Any) -> str:
    for name in ("raises", "control", "retry"):
        drawn -= getattr(rates, name)
        if drawn < 0:
            return name
    return ""
