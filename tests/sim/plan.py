"""What a seed decides before its world begins: jobs, durations and how much goes wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from giliran.jobs import Carried
from giliran.policies import Policy, fail, requeue, skip, wait
from giliran.store import Memory
from giliran.timeouts import Timeouts

if TYPE_CHECKING:
    from giliran.interrupt import Interrupter


@dataclass(slots=True)
class Rates:
    """How likely each fault is; a seed leaves out about half of them ("swarm").

    Per request: `request_lost`, `reply_lost`, `late_reply`, `late_request`, `doubled`, `refused`.
    Per step: `pause`, `crash`. Per delivery: `copy`, `raises`, `deaf` (goes on when interrupted).
    Per request: `step_back`, the server's clock is set back; `evict` and `flush`, which lose data:
    with them exclusion is not promised, the order of fences is.
    """

    request_lost: float = 0.0
    reply_lost: float = 0.0
    late_reply: float = 0.0
    late_request: float = 0.0
    doubled: float = 0.0
    refused: float = 0.0
    pause: float = 0.0
    crash: float = 0.0
    copy: float = 0.0
    raises: float = 0.0
    deaf: float = 0.0
    evict: float = 0.0
    flush: float = 0.0
    step_back: float = 0.0


MOST = Rates(0.3, 0.3, 0.3, 0.2, 0.2, 0.2, 0.02, 0.005, 0.5, 0.3, 0.5, 0.02, 0.01, 0.02)
LOSES_DATA = frozenset({"evict", "flush"})


@dataclass(frozen=True, slots=True)
class Task:
    """One guarded function: its resource, its durations and its policy."""

    lock_key: str
    timeouts: Timeouts
    policy: Policy
    recoveries: int
    remembers: bool


@dataclass(frozen=True, slots=True)
class Message:
    """One delivery of one published job, as the adapter's `Job`."""

    task: Task
    memory: Memory
    publication: str
    length: float
    carried: Carried = field(default_factory=Carried)
    elder: str = ""
    visibility: float | None = None
    job_type: str = "task"
    route: str = "queue"
    time_limit: float | None = None
    control: tuple[type[BaseException], ...] = ()
    limits: tuple[type[BaseException], ...] = ()

    @property
    def plain(self) -> bool:
        """Whether this is a call without a queue: nothing brings it again."""
        return not self.memory.kind

    @property
    def effect(self) -> str:
        """What must take effect once."""
        return self.memory.name or self.publication

    @property
    def job_id(self) -> str:
        return self.publication

    def put_back(self, delay: float, carried: Carried) -> BaseException:
        raise AssertionError("the world puts back by itself")

    def stranded(self, error: Exception) -> BaseException:
        raise AssertionError("the world's broker takes everything")

    def interrupter(self) -> Interrupter:
        raise AssertionError("the world interrupts by itself")


@dataclass(slots=True)
class Plan:
    """One seed's world."""

    rates: Rates
    jobs: list[tuple[float, Message]]
    processes: int
    faults_until: float
    ends_at: float


def draw_rates(luck: random.Random) -> Rates:
    """Choose the faults of a seed."""
    lossy = luck.random() < 0.4
    chosen = Rates()
    for one in fields(Rates):
        wanted = lossy if one.name in LOSES_DATA else luck.random() < 0.5
        if wanted:
            setattr(chosen, one.name, getattr(MOST, one.name) * luck.random() ** 2)
    return chosen


def draw(luck: random.Random) -> Plan:
    """Draw a whole plan."""
    tasks = [_task(luck, f"lock:{n}") for n in range(luck.randint(1, 3))]
    faults_until = luck.uniform(30.0, 200.0)
    jobs = [
        (luck.uniform(0.0, faults_until * 0.8), _message(luck, luck.choice(tasks), n))
        for n in range(luck.randint(3, 14))
    ]
    return Plan(draw_rates(luck), jobs, luck.randint(2, 5), faults_until, faults_until + 5000.0)


def _task(luck: random.Random, lock_key: str) -> Task:
    ttl = luck.choice([1.0, 3.0, 30.0])
    max_hold = ttl * luck.choice([1.0, 1.5, 3.0, 20.0])
    policies: list[Policy] = [
        requeue(base=1, cap=10, give_up_after=1000),
        requeue(base=0.5, cap=60, give_up_after=60, then="skip"),
        wait(luck.uniform(0.1, 3 * ttl)),
        wait(ttl, then="skip"),
        skip(),
        fail(),
    ]
    policy = luck.choice(policies)
    return Task(
        lock_key,
        Timeouts(ttl, max_hold, 7200.0),
        policy,
        luck.choice([0, 1, 5, 5]),
        luck.random() < 0.5,
    )


def _message(luck: random.Random, task: Task, n: int) -> Message:
    publication = f"pub-{n}"
    draw = luck.random()
    if draw < 0.2:
        memory = Memory()
    elif draw < 0.6:
        after = luck.choice(["retry", "retry", "hold"])
        # A record belongs to its resource.
        name = f"{task.lock_key}/{luck.randint(0, 3)}"
        assert after in ("retry", "hold")
        memory = Memory("record", name, "f", "hold" if after == "hold" else "retry", 1 + 5)
    else:
        memory = Memory("delivery", publication)
    # From a blink to several TTLs.
    length = 0.01 * (300 * task.timeouts.ttl) ** luck.random()
    return Message(task, memory, publication, length)
