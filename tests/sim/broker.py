"""A queue that keeps every message until it is acknowledged, and delivers more often than once."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.sim.violation import Violation
from tests.sim.world import FOREVER, Process

from giliran.errors import NotPublished
from giliran.jobs import Carried
from giliran.steps import Publish
from giliran.verdicts import PutBack

if TYPE_CHECKING:
    from tests.sim.plan import Message, Rates
    from tests.sim.world import Actor, World


OUTCOMES = frozenset(
    {"job.ran", "job.failed", "job.crashed", "job.replayed", "job.skipped", "job.gave_up",
     "job.refused"}
)  # fmt: skip
PARKED, REVOKED = "job.parked", "revoked"
COPIES_MAX = 8
AT_ONCE = 0.002


@dataclass(slots=True, eq=False)
class Delivery:
    """One hand-over of a message to a process."""

    label: str
    message: Message
    process: Process
    since: float
    acked: bool = False


class Broker:
    """Delivers to processes of the world.

    Attributes:
        begin: starts a delivery in its process.
        copies: how many deliveries of a publication must each come to an outcome.
        outcomes: to which they came; "job.parked" is one, and to publish it again makes a copy.
        repeated: tickets of publications of which there was more than one copy at once.
    """

    def __init__(self, world: World, begin: Callable[[Delivery], None]) -> None:
        self.world = world
        self.begin = begin
        self.copies: Counter[str] = Counter()
        self.outcomes: dict[str, list[str]] = defaultdict(list)
        self.repeated: set[str] = set()
        self._messages: dict[str, Message] = {}
        self._delivered: Counter[str] = Counter()
        self._open: dict[str, Delivery] = {}
        self._left = 0
        world.carriers[Publish] = self._publish_parked

    @property
    def busy(self) -> bool:
        """Whether some delivery has not come to its outcome, and will before a process thaws."""
        frozen = sum(d.process.paused_until == FOREVER for d in self._open.values())
        return self._left > frozen

    def carries(self, publication: str) -> bool:
        """Whether the queue or a worker has this job, or had it until its end."""
        came = self.outcomes[publication]
        return self.copies[publication] > len(came) or any(one != PARKED for one in came)

    def publish(self, message: Message, delay: float) -> None:
        """Accept a message, due in a while."""
        self._messages[message.publication] = message
        self._copy(message, delay)

    def crashed(self, delivery: Delivery) -> None:
        """The process died: what was not acked comes again, a plain call is gone with it."""
        if delivery.message.plain:
            self.ack(delivery, "crashed with its caller")
        elif not delivery.acked:
            self._open.pop(delivery.label)
            delivery.acked = True
            self.repeated.add(delivery.message.ticket)  # It may have been parked already.
            self._redeliver(delivery, f"{delivery.label} again after")

    def ack(self, delivery: Delivery, outcome: str) -> None:
        """A delivery is over."""
        self._open.pop(delivery.label, None)
        delivery.acked = True
        self._came(delivery.message.publication, outcome)

    def put_back(self, delivery: Delivery, back: PutBack) -> None:
        """Publish again and ack; perhaps the first fails, or the second does not come to be."""
        world, message = self.world, delivery.message
        if back.delay <= 0:
            raise Violation(f"{message.publication} was put back without a delay")
        self._open.pop(delivery.label, None)
        delivery.acked = True
        if world.choices.chance(f"{delivery.label} is stranded", world.rates.broker_refuses):
            world.happened["job.stranded"] += 1
            self._redeliver(delivery, f"{delivery.label} again after")
            return
        world.at(world.time + back.delay, self._deliver, replace(message, carried=back.carried))
        rate = world.rates.published_then_crashed
        many = self.copies[message.publication] >= COPIES_MAX
        if not many and world.choices.chance(f"{delivery.label} put back, not acked", rate):
            world.happened["published, then crashed"] += 1
            self._repeat(message)
            self._redeliver(delivery, f"{delivery.label} again after")

    def abandon(self, process: Process) -> None:
        """The connection to a frozen process is gone: what it has not acked comes again."""
        for delivery in [d for d in self._open.values() if d.process is process]:
            if not delivery.message.plain:
                self._repeat(delivery.message)
                self._redeliver(delivery, f"{delivery.label} dropped, again after")

    # ------------------------------------------------------------------ from the shelf

    def _publish_parked(self, actor: Actor, step: Publish) -> None:
        """Take a job that was called, or do not, or do and let nobody hear of it."""
        world, told = self.world, json.loads(step.payload)
        message = self._messages[told.pop("publication")]
        carried = replace(Carried(**told), rank=step.rank, verdict=step.verdict)
        if step.route not in actor.process.routes:
            raise Violation(f"{actor.name} publishes on {step.route}, which it does not serve")
        if world.freezes(actor, step):
            return
        turn, name = actor.turn, f"{actor.name} publishes"
        dull: list[Any] = ["", AT_ONCE]
        fate, delay = world.choices.of(name, dull, lambda luck: _fate(luck, world.rates))
        answer: NotPublished | None = None
        if message.poison == "deadly":
            world.happened["publish: deadly"] += 1
            world.crash(actor.process)
            return
        if message.poison:
            fate, answer = "refused", NotPublished("ValueError")
        elif fate in ("unreachable", "unheard"):
            answer = NotPublished("OSError", outage=True)
        world.note("broker", f"{message.publication} {step.verdict} {fate or 'taken'}")
        world.happened[f"publish: {fate or 'taken'}"] += 1
        if not step.verdict:
            world.oracle.line.note_published(message.task.lock_key, message.ticket, step.rank)
        outage = "unreachable" if answer is not None and answer.outage else "refused"
        actor.became = outage if answer is not None else "taken"
        if fate not in ("refused", "unreachable"):
            if self.copies[message.publication] > len(self.outcomes[message.publication]):
                self.repeated.add(message.ticket)
            if fate == REVOKED:
                self._owe(message)
                self._came(message.publication, REVOKED)
            else:
                self._copy(replace(message, carried=carried), delay)
        world.at(world.time + AT_ONCE, world.resume, actor, turn, answer)

    # ------------------------------------------------------------------ deliveries

    def _owe(self, message: Message) -> None:
        self.copies[message.publication] += 1
        self._left += 1

    def _came(self, publication: str, outcome: str) -> None:
        self.outcomes[publication].append(outcome)
        self._left -= 1

    def _copy(self, message: Message, delay: float) -> None:
        self._owe(message)
        self.world.at(self.world.time + delay, self._deliver, message)

    def _repeat(self, message: Message) -> None:
        self.repeated.add(message.ticket)
        self._owe(message)

    def _redeliver(self, delivery: Delivery, name: str) -> None:
        pause = self.world.choices.of(name, 1.0, lambda luck: round(luck.uniform(0.1, 30.0), 3))
        self.world.at(self.world.time + pause, self._deliver, delivery.message)

    def _deliver(self, message: Message) -> None:
        world = self.world
        self._delivered[message.publication] += 1
        label = f"{message.publication} d{self._delivered[message.publication]}"
        able = [
            p for p in world.processes
            if p.paused_until < FOREVER and (message.plain or message.route in p.routes)
        ]  # fmt: skip
        index = world.choices.of(f"{label} process", 0, lambda luck: luck.randrange(6))
        delivery = Delivery(label, message, able[index % len(able)], world.time)
        many = self.copies[message.publication] >= COPIES_MAX
        if not message.plain and not many:
            pause = world.choices.of(
                f"{label} copy after", 0.0, lambda luck: _copy(luck.random(), world.rates.copy)
            )
            if pause:
                world.happened["duplicate delivery"] += 1
                self._repeat(message)
                world.at(world.time + pause, self._deliver, message)
        if message.visibility is not None and not message.plain:
            world.at(world.time + message.visibility, self._visible_again, delivery)
        self._open[label] = delivery
        self.begin(delivery)

    def _visible_again(self, delivery: Delivery) -> None:
        # A visibility timeout is longer than the job, unless its process stood still.
        if delivery.acked or delivery.process.stood_still < delivery.since:
            return
        self.world.happened["visible again"] += 1
        self._repeat(delivery.message)
        self._deliver(delivery.message)

    def check_end(self, given_up: set[str]) -> None:
        """Every copy of every message came to exactly one outcome, and no job to none.

        `given_up` are publications on the dead list, and those that the store has lost.
        """
        for publication, copies in self.copies.items():
            came = self.outcomes[publication]
            if len(came) != copies:
                raise Violation(f"S8: {copies} copies of {publication} came to {came}")
            if publication not in given_up and not self.carries(publication):
                raise Violation(f"S8: {publication} was parked, and came to no end")


def _copy(drawn: float, rate: float) -> float:
    """Choose when a copy comes; 0 for never."""
    return 0.0 if drawn >= rate else round(40.0 * drawn / rate, 3)


def _fate(luck: random.Random, rates: Rates) -> list[Any]:
    """Draw what becomes of a parked job that is published, and how long it lies in the queue."""
    fate, delay = luck.random(), 0.001 + luck.expovariate(20.0)
    for name in ("unreachable", "unheard", REVOKED):
        fate -= getattr(rates, name)
        if fate < 0:
            return [name, round(delay, 3)]
    if luck.random() < rates.late_head:
        delay += luck.uniform(0.0, 40.0)
    return ["", round(delay, 3)]
