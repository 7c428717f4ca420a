"""Makes jobs, never more than a few at once: with an open loop a backlog looks like loss."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, replace

from chaos.history import Recorder
from chaos.judgement import POISON, RESOURCES
from chaos.queue import Message, RedisQueue, Unanswered, fresh_id

OUTSTANDING = 40
AT_ONCE = 8
HOT = 4
POISONED = 40
NAMES = (*(f"r{n}" for n in range(RESOURCES)), *(f"p{n}" for n in range(POISONED)))
WEIGHTS = {
    "ledger": 2, "blind": 4, "record": 2, "plain": 2, "in_line": 4, "hasty": 2, "newest": 4,
    "pair": 3,
}  # fmt: skip
KEYED = frozenset({"ledger", "blind", "record", "in_line"})


@dataclass(frozen=True, slots=True)
class Order:
    """One message to be sent; `twin` if it is one of two for the same effect."""

    message: Message
    twin: bool = False


def draw(luck: random.Random) -> list[Order]:
    """Draw one job: mostly one message, sometimes two for one effect."""
    if luck.random() < 1 / 300:
        return _poison(f"p{luck.randrange(POISONED)}")
    hot = luck.random() < 0.4
    resource = f"r{luck.randrange(HOT if hot else RESOURCES)}"
    task = luck.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))[0]
    # Only a careless job that outlives its lease shows that late writes are fenced off.
    long = luck.random() < (1 / 4 if task == "blind" else 1 / 12)
    effect = fresh_id()
    if task == "plain" and luck.random() < 0.1:
        effect = f"refused:{effect}"
    args = {
        "resource": resource,
        "effect": effect,
        "seconds": round(luck.uniform(1.2, 1.7) if long else luck.uniform(0.005, 0.06), 4),
        "pause": round(luck.choice((0.0, 0.0, 0.02)), 4),
    }
    first = Message(task, args)
    if luck.random() < 0.08:
        return [Order(first), Order(replace(first, id=fresh_id()), twin=True)]
    if task in KEYED and luck.random() < 0.08:
        return [Order(first), Order(Message(task, args), twin=True)]
    return [Order(first)]


def _poison(resource: str) -> list[Order]:
    """Make a job that is parked behind a long one, and that no caller can publish.

    It has its line to itself: it keeps the resource for as long as it takes to set it aside.
    """
    args = {"resource": resource, "effect": fresh_id(), "seconds": 1.5, "pause": 0.0}
    poison = {**args, "effect": POISON + fresh_id()}
    return [Order(Message("in_line", args)), Order(Message("in_line", poison))]


def accepted(message: Message) -> dict[str, str]:
    """Tell of a message that the broker has, for the history."""
    args = message.args
    return {
        "job": message.job,
        "task": message.task,
        "res": f"lock:{args['resource']}",
        "effect": args["effect"],
    }


class Producer:
    """Keeps a bounded number of messages in the queue."""

    def __init__(self, queue: RedisQueue, recorder: Recorder, seed: int) -> None:
        self._queue = queue
        self._recorder = recorder
        self._luck = random.Random(seed + 1)
        self._orders: deque[Order] = deque()
        self.accepted = 0

    def step(self, outstanding: int) -> None:
        """Send some, if there is room. What got no answer is sent again, the same, next time."""
        for _ in range(min(AT_ONCE, OUTSTANDING - outstanding)):
            if not self._orders:
                self._orders.extend(draw(self._luck))
            if not self._send():
                return

    def finish(self) -> bool:
        """Send what has been begun; True once all of it was accepted."""
        while self._orders:
            if not self._send():
                return False
        return True

    def _send(self) -> bool:
        message = self._orders[0].message
        try:
            self._queue.enqueue(message)
        except Unanswered:
            return False
        self._orders.popleft()
        self.accepted += 1
        self._recorder.log("accepted", **accepted(message))
        return True
