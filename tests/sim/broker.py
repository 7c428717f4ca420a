"""A queue that keeps every message until it is acknowledged, and delivers more often than once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.sim.oracle import Violation
from tests.sim.world import FOREVER, Process

from giliran.attempt import PutBack

if TYPE_CHECKING:
    from tests.sim.plan import Message
    from tests.sim.world import World

OUTCOMES = frozenset(
    {"job.ran", "job.failed", "job.crashed", "job.replayed", "job.skipped", "job.gave_up",
     "job.refused"}
)  # fmt: skip
COPIES_MAX = 8


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
        outcomes: to which they came.
    """

    def __init__(self, world: World, begin: Callable[[Delivery], None]) -> None:
        self.world = world
        self.begin = begin
        self.copies: Counter[str] = Counter()
        self.outcomes: dict[str, list[str]] = defaultdict(list)
        self._delivered: Counter[str] = Counter()
        self._open: dict[str, Delivery] = {}

    def publish(self, message: Message, delay: float) -> None:
        """Accept a message, due in a while."""
        self.copies[message.publication] += 1
        self.world.at(self.world.time + delay, self._deliver, message)

    def crashed(self, delivery: Delivery) -> None:
        """The process died: what was not acked comes again, a plain call is gone with it."""
        if delivery.message.plain:
            self.ack(delivery, "crashed with its caller")
        elif not delivery.acked:
            self._open.pop(delivery.label)
            delivery.acked = True
            self._redeliver(delivery, f"{delivery.label} again after")

    def ack(self, delivery: Delivery, outcome: str) -> None:
        """A delivery is over."""
        self._open.pop(delivery.label, None)
        delivery.acked = True
        self.outcomes[delivery.message.publication].append(outcome)

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
            self.copies[message.publication] += 1
            self._redeliver(delivery, f"{delivery.label} again after")

    def abandon(self, process: Process) -> None:
        """The connection to a frozen process is gone: what it has not acked comes again."""
        for delivery in [d for d in self._open.values() if d.process is process]:
            if not delivery.message.plain:
                self.copies[delivery.message.publication] += 1
                self._redeliver(delivery, f"{delivery.label} dropped, again after")

    # ------------------------------------------------------------------ deliveries

    def _redeliver(self, delivery: Delivery, name: str) -> None:
        pause = self.world.choices.of(name, 1.0, lambda luck: round(luck.uniform(0.1, 30.0), 3))
        self.world.at(self.world.time + pause, self._deliver, delivery.message)

    def _deliver(self, message: Message) -> None:
        world = self.world
        self._delivered[message.publication] += 1
        label = f"{message.publication} d{self._delivered[message.publication]}"
        awake = [p for p in world.processes if p.paused_until < FOREVER]
        index = world.choices.of(f"{label} process", 0, lambda luck: luck.randrange(6))
        delivery = Delivery(label, message, awake[index % len(awake)], world.time)
        many = self.copies[message.publication] >= COPIES_MAX
        if not message.plain and not many:
            pause = world.choices.of(
                f"{label} copy after", 0.0, lambda luck: _copy(luck.random(), world.rates.copy)
            )
            if pause:
                world.happened["duplicate delivery"] += 1
                self.copies[message.publication] += 1
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
        self.copies[delivery.message.publication] += 1
        self._deliver(delivery.message)

    def check_end(self) -> None:
        """Every copy of every message came to exactly one outcome."""
        for publication, copies in self.copies.items():
            came = self.outcomes[publication]
            if len(came) != copies:
                raise Violation(f"S8: {copies} copies of {publication} came to {came}")


def _copy(drawn: float, rate: float) -> float:
    """Choose when a copy comes; 0 for never."""
    return 0.0 if drawn >= rate else round(40.0 * drawn / rate, 3)
