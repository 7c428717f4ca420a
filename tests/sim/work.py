"""What simulated workers do with a delivery: the attempt, the body, its end, its effects."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from tests.sim.broker import OUTCOMES, Broker, Delivery
from tests.sim.oracle import Violation
from tests.sim.plan import BodyError, ControlFlow, Message, TimeLimit
from tests.sim.sinks import Sinks
from tests.sim.world import Actor, World, sleep

from giliran import programs
from giliran.attempt import Attempt, Ended, PutBack, Raise, Raised, Return, Returned, Rules, Run
from giliran.errors import LeaseInterrupt, LeaseLost, StoreUnavailable
from giliran.holder import Claimant
from giliran.lease import Lease
from giliran.results import Codec
from giliran.steps import Program
from giliran.store import Ask

PATIENCE = 5.0
ENDS = OUTCOMES | {"job.requeued", "lock.duplicate"}
CODEC = Codec(lambda: int)


class Work:
    """Carries out deliveries."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.broker = Broker(world, self._begin)
        self.sinks = Sinks(world)
        self._tokens = 0
        self._owed: set[str] = set()  # tokens whose leases are being given back, or were

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
        self._end(actor, delivery, attempt, verdict)

    def _attempt(self, delivery: Delivery) -> Attempt:
        world, message, task = self.world, delivery.message, delivery.message.task
        self._tokens += 1
        token = f"{self._tokens:032x}"
        claimant = Claimant(message.publication, message.job_id, "task", "q", "host=h;pid=1")
        timeouts = task.timeouts
        if message.memory.kind == "delivery":
            timeouts = replace(timeouts, retain=max(3600.0, timeouts.ttl))
        return Attempt(
            Ask(task.lock_key, token, timeouts, claimant, message.memory, message.elder),
            Rules(task.policy, task.recoveries, CODEC, (BodyError,) * task.remembers),
            None if message.plain else message, task.lock_key,
            lambda: world.local(delivery.process),
            lambda: world.choices.of(f"{delivery.label} luck", 0.5, lambda luck: luck.random()),
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
            memory = replace(memory, name=publication)
        again = replace(message, publication=publication, elder=message.publication, memory=memory)
        self.broker.publish(again, pause)

    # ------------------------------------------------------------------ ends

    def _settle_debt(self, delivery: Delivery, attempt: Attempt) -> None:
        world, ask = self.world, attempt.ask
        held = world.server.redis.peek(ask.lock_key)
        ours = isinstance(held, str) and held.startswith(ask.token)
        if attempt.owed is None:
            return
        world.happened["abandon"] += 1
        world.happened["abandon of a lease that was ours"] += ours
        debt = programs.abandon(ask, attempt.owed)
        attempt.owed = None
        self._owed.add(ask.token)
        actor = world.spawn(delivery.process, f"{delivery.label} abandon", ask.lock_key, debt)
        since = world.time
        actor.on_end = lambda: self._check_abandoned(ask, since)

    def _check_abandoned(self, ask: Ask, since: float) -> None:
        held = self.world.server.redis.peek(ask.lock_key)
        in_time = self.world.time < since + 0.9 * ask.timeouts.ttl
        ours = isinstance(held, str) and held.startswith(ask.token)
        if ours and in_time and self._sure(ask.token):
            raise Violation(f"L5: the orphan of {ask.token} was not given back")

    def _sure(self, token: str) -> bool:
        """Whether nothing of this token is under way, and nothing was lost."""
        oracle = self.world.oracle
        return token not in oracle.stray and not oracle.excused(token)

    def _end(
        self,
        actor: Actor,
        delivery: Delivery,
        attempt: Attempt,
        ended: Ended,
    ) -> None:
        message, oracle = delivery.message, self.world.oracle
        told = [event.name for event in actor.told if event.name in ENDS]
        if not told and isinstance(ended, Raise) and isinstance(ended.error, ControlFlow):
            told = ["control flow"]
        elif message.plain and not told and isinstance(ended, Raise):
            told = ["lost"]  # It raises LeaseLost to its caller.
        if len(told) != 1:
            raise Violation(f"a delivery of {message.publication} was told to end as {told}")
        self._check_orphan(attempt)
        losses = [e.reason for e in actor.told if e.name == "lock.lost"]
        token = attempt.ask.token
        denied = bool(losses) and losses[0] in ("expired", "taken")
        # One copy of a doubled request may be refused, and the other one applied; and who stood
        # still for longer than its record is kept cannot know (seed 7735).
        records = attempt.ask.memory.key(attempt.ask.lock_key)
        kept = all(self.world.server.redis.peek(record) is not None for record in records)
        if denied and kept and token in oracle.finished and token not in oracle.doubled:
            raise Violation(f"{actor.name} was told {losses[0]}, but its finish had been applied")
        if isinstance(ended, PutBack):
            self._check_carried(actor, message, ended)
            self.broker.put_back(delivery, ended)
            return
        self._check_outcome(actor, message, token, told[0], ended)
        self.broker.ack(delivery, told[0])

    def _check_orphan(self, attempt: Attempt) -> None:
        """Nothing may still be held by a delivery that is over, unless it is being given back."""
        token = attempt.ask.token
        held = self.world.server.redis.peek(attempt.ask.lock_key)
        ours = isinstance(held, str) and held.startswith(token)
        if ours and self._sure(token) and token not in self._owed:
            raise Violation(f"L5: {token} is over, holds the lock, and nobody gives it back")

    def _check_carried(self, actor: Actor, message: Message, back: PutBack) -> None:
        """One put back counts as one thing at most: contention never as a recovery."""
        old, new = message.carried, back.carried
        counts = (
            new.contentions - old.contentions,
            new.recoveries - old.recoveries,
            new.outages - old.outages,
        )
        ends = (e.reason for e in actor.told if e.name in ("job.requeued", "lock.duplicate"))
        why = next(ends)
        wanted = {
            "contended": (1, 0, 0),
            "unavailable": (0, 0, 1),
            "publication": (0, 0, 0),
            "elder": (0, 0, 0),
        }.get(why, (0, 1, 0))
        if counts != wanted:
            raise Violation(f"S9: {message.publication}, put back as {why}, counted {counts}")

    def _check_outcome(
        self,
        actor: Actor,
        message: Message,
        token: str,
        told: str,
        ended: Ended,
    ) -> None:
        oracle = self.world.oracle
        contended = any(e.reason in ("contended", "contention") for e in actor.told)
        blocked = oracle.blocked_by.get(token, "")
        own = {message.publication, message.elder} - {""}
        if contended and not message.plain and blocked in own:
            raise Violation(f"{message.publication} met {blocked} as contention: {told}")
        if told == "job.ran":
            unrecorded = any(e.name == "record.unrecorded" for e in actor.told)
            if message.effect not in self.sinks.rows:
                raise Violation(f"{message.publication} was reported as run without an effect")
            recorded = token in oracle.finished or unrecorded or not self._sure(token)
            if message.memory.kind and not recorded:
                raise Violation(f"{message.publication} was told as recorded, but is not")
        if told == "job.replayed" and isinstance(ended, Return):
            self._check_replayed(message, ended.value)
        if isinstance(ended, Raise) and isinstance(ended.error, StoreUnavailable):
            self.world.happened["gave up an outage"] += 1

    def _check_replayed(self, message: Message, value: object) -> None:
        """A repeat is answered with what the effect came to."""
        if value != self.sinks.rows.get(message.effect):
            raise Violation(f"S7: {message.publication} was answered with {value!r}")


def _ending(drawn: float, rates: Any) -> str:
    for name in ("raises", "control", "retry"):
        drawn -= getattr(rates, name)
        if drawn < 0:
            return name
    return ""
