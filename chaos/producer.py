"""Makes jobs, never more than a few at once: with an open loop a backlog looks like loss."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, replace

from chaos.history import Recorder
from chaos.queue import Message, RedisQueue, Unanswered, fresh_id

OUTSTANDING = 40
AT_ONCE = 8
RESOURCES, HOT = 40, 4


@dataclass(frozen=True, slots=True)
class Order:
    """One message to be sent; `twin` if it is one of two for the same effect."""

    message: Message
    twin: bool = False


def draw(luck: random.Random) -> list[Order]:
    """Draw one job: mostly one message, sometimes two for one effect."""
    hot = luck.random() < 0.4
    resource = f"r{luck.randrange(HOT if hot else RESOURCES)}"
    task = luck.choices(("ledger", "blind", "record", "plain"), (3, 3, 3, 2))[0]
    long = luck.random() < 1 / 12
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
    if task != "plain" and luck.random() < 0.08:
        return [Order(first), Order(Message(task, args), twin=True)]
    return [Order(first)]


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
        self._recorder.log(
            "accepted", job=message.job, task=message.task, effect=message.args["effect"]
        )
        return True
