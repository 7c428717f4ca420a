"""How a delivery ends: what its worker is told must agree with what the store was told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.broker import OUTCOMES, PARKED, Broker, Delivery
from tests.sim.plan import ControlFlow, Message
from tests.sim.violation import Violation

from giliran.errors import StoreUnavailable
from giliran.verdicts import Ended, Parked, PutBack, Raise, Return

if TYPE_CHECKING:
    from tests.sim.sinks import Sinks
    from tests.sim.world import Actor, World

    from giliran.attempt import Attempt
    from giliran.store import Ask

ENDS = OUTCOMES | {"job.requeued", "lock.duplicate", PARKED}


class Ends:
    """Ends deliveries, and checks them.

    Attributes:
        owed: tokens whose leases are being given back, or were.
    """

    def __init__(self, world: World, broker: Broker, sinks: Sinks) -> None:
        self.world = world
        self.broker = broker
        self.sinks = sinks
        self.owed: set[str] = set()

    def check_abandoned(self, ask: Ask, since: float) -> None:
        """What was given back is not held any more."""
        held = self.world.server.redis.peek(ask.lock_key)
        in_time = self.world.time < since + 0.9 * ask.timeouts.ttl
        ours = isinstance(held, str) and held.startswith(ask.token)
        if ours and in_time and self._sure(ask.token):
            raise Violation(f"L5: the orphan of {ask.token} was not given back")

    def _sure(self, token: str) -> bool:
        """Whether nothing of this token is under way, and nothing was lost."""
        oracle = self.world.oracle
        return token not in oracle.stray and not oracle.excused(token)

    def end(
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
        if not told and isinstance(ended, PutBack) and ended.carried == message.carried:
            told = ["tries spent"]
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
            self.world.happened["cannot be shelved"] += not message.task.shelves
            if ended.carried.recoveries > message.carried.recoveries:
                oracle.shelf.recovered.add(message.ticket)
            if ended.carried.outages > message.carried.outages:
                self.broker.repeated.add(message.ticket)  # It may have been parked all the same.
            self.broker.put_back(delivery, ended)
            return
        if (told[0] == PARKED) != isinstance(ended, Parked):
            raise Violation(f"{message.publication} was told as {told[0]}, and ended as {ended}")
        name = type(message.task.policy).__name__
        self.world.happened[f"{told[0]} by {name}"] += told[0] == PARKED
        self._check_outcome(actor, message, token, told[0], ended)
        self.broker.ack(delivery, told[0])

    def _check_orphan(self, attempt: Attempt) -> None:
        """Nothing may still be held by a delivery that is over, unless it is being given back."""
        token = attempt.ask.token
        held = self.world.server.redis.peek(attempt.ask.lock_key)
        ours = isinstance(held, str) and held.startswith(token)
        if ours and self._sure(token) and token not in self.owed:
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
        why = next(ends, "publication")
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
        if told == PARKED:
            oracle.shelf.check_marked(message.task.lock_key, message.ticket)
        contended = any(e.reason in ("contended", "contention") for e in actor.told)
        blocked = oracle.blocked_by.get(token, "")
        own = {message.publication, message.elder} - {""}
        if contended and token in oracle.queued:
            self.world.happened[f"{told} behind a line"] += 1
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
