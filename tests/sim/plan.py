"""What a wave of jobs is made of: tasks, messages, durations and how much goes wrong."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from tests.sim.choices import Choices

from giliran.holder import field as field_of
from giliran.jobs import Carried
from giliran.line import Shelved
from giliran.policies import Policy, coalesce, fail, hand_off, requeue, skip, wait
from giliran.store import Memory
from giliran.timeouts import Timeouts

if TYPE_CHECKING:
    from giliran.interrupt import Interrupter

JOBS, TASKS = 24, 6
DULL: dict[str, Any] = {}
POLICIES = (
    "requeue", "requeue", "requeue skip", "wait", "wait skip", "skip", "fail",
    "hand_off", "hand_off", "hand_off", "hand_off few", "hand_off skip", "coalesce", "coalesce",
)  # fmt: skip


class BodyError(Exception):
    """The job's own failure."""


class ControlFlow(Exception):
    """What a framework raises for its own purposes, such as a retry it has published."""


class TimeLimit(Exception):
    """What a framework raises into a job that runs too long."""


@dataclass(slots=True)
class Rates:
    """How likely each fault is; a wave leaves out about half of them ("swarm").

    First what happens to a request, then to the store at a request, then to a process at a step,
    then to a called job, to a delivery or its body.
    """

    request_lost: float = 0.3
    reply_lost: float = 0.3
    late_reply: float = 0.3
    late_request: float = 0.2
    doubled: float = 0.2
    slow: float = 0.3
    cut: float = 0.03
    restart: float = 0.02
    restart_behind: float = 0.02
    restart_empty: float = 0.02
    failover: float = 0.02
    evict: float = 0.04
    operator: float = 0.02
    clock_back: float = 0.02
    clock_forward: float = 0.02
    oom: float = 0.03
    misconf: float = 0.03
    readonly: float = 0.02
    loading: float = 0.02
    pause: float = 0.02
    crash: float = 0.008
    copy: float = 0.5
    broker_refuses: float = 0.3
    published_then_crashed: float = 0.3
    unreachable: float = 0.3
    unheard: float = 0.2
    revoked: float = 0.2
    late_head: float = 0.4
    frozen: float = 0.2
    raises: float = 0.3
    control: float = 0.2
    retry: float = 0.4
    deaf: float = 0.5


MOST = Rates()
NONE = Rates(*(0.0 for _ in fields(Rates)))
# With these, exclusion is not promised; the order of fences and the sinks are.
BREAKS = frozenset(
    {"restart_behind", "restart_empty", "failover", "evict", "operator", "clock_forward"}
)


@dataclass(frozen=True, slots=True)
class Task:
    """One guarded function: its resource, its durations and its policy."""

    lock_key: str
    timeouts: Timeouts
    policy: Policy
    recoveries: int
    remembers: bool
    visibility: float | None
    time_limit: float | None
    name: str = "task"
    route: str = "a"
    shelves: bool = True


@dataclass(frozen=True, slots=True)
class Message:
    """One delivery of one published job, as the adapter's `Job`.

    `poison` is what happens to who publishes it from the shelf: it is "refused", or it is "deadly".
    """

    task: Task
    memory: Memory
    publication: str
    length: float
    carried: Carried = field(default_factory=Carried)
    elder: str = ""
    poison: str = ""
    control: tuple[type[BaseException], ...] = (ControlFlow,)
    limits: tuple[type[BaseException], ...] = (TimeLimit,)

    @property
    def job_type(self) -> str:
        return self.task.name

    @property
    def route(self) -> str:
        return self.task.route

    @property
    def visibility(self) -> float | None:
        return self.task.visibility

    @property
    def time_limit(self) -> float | None:
        return self.task.time_limit

    @property
    def plain(self) -> bool:
        """Whether this is a call without a queue: nothing brings it again."""
        return not self.memory.kind

    @property
    def effect(self) -> str:
        """What must take effect once."""
        return f"{self.task.lock_key} {self.memory.name or self.publication}"

    @property
    def ticket(self) -> str:
        """Its place in line."""
        return field_of(self.publication)

    @property
    def job_id(self) -> str:
        return self.publication

    def put_back(self, delay: float, carried: Carried) -> BaseException:
        raise AssertionError("the world puts back by itself")

    def shelve(self, carried: Carried) -> Shelved | None:
        if not self.task.shelves:
            return None
        return Shelved(self.route, json.dumps({"publication": self.publication, **asdict(carried)}))

    def parked(self) -> BaseException:
        raise AssertionError("the world parks by itself")

    def stranded(self, error: Exception) -> BaseException:
        raise AssertionError("the world's broker redelivers by itself")

    def interrupter(self) -> Interrupter:
        raise AssertionError("the world interrupts by itself")


@dataclass(slots=True)
class Wave:
    """Jobs, the faults they meet, and how long these last."""

    number: int
    rates: Rates
    jobs: list[tuple[float, Message]]
    faulty_for: float
    core_only: bool
    bound: float


def draw_wave(choices: Choices, number: int) -> Wave:
    """Draw a wave; what is not decided by the schedule is as dull as can be."""
    rates = _rates(choices.luck)
    faulty_for = float(choices.of(f"wave {number} faulty for", 0.0, lambda r: r.uniform(20, 150)))
    core_only = choices.of(
        f"wave {number} core only", default=False, draw=lambda r: r.random() < 0.25
    )
    resources = choices.luck.randint(1, 3)
    tasks = [
        _task(name, choices.of(name, DULL, lambda r: _draw_task(r, resources)))
        for name in (f"task {number}.{n}" for n in range(TASKS))
    ]
    density = choices.luck.uniform(0.3, 1.0)
    jobs: list[tuple[float, Message]] = []
    for n in range(JOBS):
        spec = choices.of(f"job {number}.{n}", DULL, lambda r: _draw_job(r, density, faulty_for))
        if spec:
            jobs.append((spec["at"], _message(spec, tasks[spec["task"]], f"{number}.{n}")))
    return Wave(number, rates, jobs, faulty_for, core_only, _bound(tasks, jobs))


def _rates(luck: random.Random) -> Rates:
    breaks = luck.random() < 0.35
    rates = Rates(*(0.0 for _ in fields(Rates)))
    for one in fields(Rates):
        if breaks if one.name in BREAKS else luck.random() < 0.5:
            setattr(rates, one.name, getattr(MOST, one.name) * luck.random() ** 2)
    return rates


def _draw_task(luck: random.Random, resources: int) -> dict[str, Any]:
    ttl = luck.choice([1.0, 3.0, 30.0])
    return {
        "resource": luck.randrange(resources),
        "ttl": ttl,
        "max_hold": ttl * luck.choice([1.0, 1.5, 3.0, 20.0]),
        "retain": luck.choice([60.0, 3600.0, 7200.0, 7200.0]),
        "policy": luck.choice(POLICIES),
        "budget": luck.choice([0.2, 1.0, 5.0, 30.0, 90.0]),
        "recoveries": luck.choice([0, 1, 5, 5]),
        "remembers": luck.random() < 0.5,
        "visibility": luck.choice([None, None, 20.0, 120.0]),
        "time_limit": luck.choice([None, None, None, ttl]),
        "route": luck.choice("aaab"),
        "shelves": luck.random() < 0.95,
    }  # fmt: skip


def _task(name: str, spec: dict[str, Any]) -> Task:
    budget = spec.get("budget", 5.0)
    longer = max(60.0, budget * 4)
    policies: dict[str, Policy] = {
        "requeue": requeue(base=1, cap=10, give_up_after=longer * 3),
        "requeue skip": requeue(base=0.5, cap=longer, give_up_after=longer, then="skip"),
        "wait": wait(budget),
        "wait skip": wait(budget, then="skip"),
        "hand_off": hand_off(give_up_after=longer * 2),
        "hand_off few": hand_off(give_up_after=longer * 3, most=2),
        "hand_off skip": hand_off(give_up_after=budget, then="skip"),
        "coalesce": coalesce(give_up_after=longer),
        "skip": skip(returns=-1),
        "fail": fail(),
    }
    ttl = spec.get("ttl", 3.0)
    return Task(
        f"lock:{spec.get('resource', 0)}",
        Timeouts(ttl, spec.get("max_hold", 20 * ttl), spec.get("retain", 7200.0)),
        policies[spec.get("policy", "requeue")],
        spec.get("recoveries", 5),
        spec.get("remembers", False),
        spec.get("visibility"),
        spec.get("time_limit"),
        name,
        spec.get("route", "a"),
        spec.get("shelves", True),
    )


def _draw_job(luck: random.Random, density: float, within: float) -> dict[str, Any]:
    if luck.random() >= density:
        return {}
    return {
        "task": luck.randrange(TASKS),
        "at": luck.uniform(0.0, within * 0.8),
        "kind": luck.choice(["", "record", "record", "delivery", "delivery"]),
        "name": luck.randrange(4),
        "fingerprint": luck.choice("ffffg"),
        "after_crash": luck.choice(["retry", "retry", "hold"]),
        "length": luck.random(),
        "overstays": luck.choice([0.0] * 9 + [0.98, 1.1]),
        "poison": _poison(luck.random()),
    }


def _poison(drawn: float) -> str:
    return "deadly" if drawn < 0.004 else "refused" if drawn < 0.08 else ""


def _message(spec: dict[str, Any], task: Task, label: str) -> Message:
    publication = f"job {label}"
    memory = Memory()
    if spec["kind"] == "record":
        name = f"{label.partition('.')[0]}/{spec['name']}"
        memory = Memory(
            "record", name, spec["fingerprint"], spec["after_crash"], task.recoveries + 1
        )
    elif spec["kind"] == "delivery":
        memory = Memory("delivery", field_of(publication))
    # From a blink to several TTLs, or about as long as is allowed.
    length = 0.01 * (300 * task.timeouts.ttl) ** spec["length"]
    overstays = spec.get("overstays", 0.0) * task.timeouts.max_hold
    return Message(task, memory, publication, overstays or length, poison=spec.get("poison", ""))


def _bound(tasks: list[Task], jobs: list[tuple[float, Message]]) -> float:
    """Seconds from the end of the faults until all must be over.

    Every job may once more give up only at the end of its budget, run to its end and wait for a
    dead holder; what is done in turns adds up. What kills its callers is called a hundred times.
    """
    longest = max(task.timeouts.ttl for task in tasks)
    budgets = max(
        getattr(t.policy, "give_up_after", 0) + getattr(t.policy, "budget", 0) for t in tasks
    )
    deadly = sum(message.poison == "deadly" for _, message in jobs)
    turns = 3 * budgets + 4 * longest + 9 * sum(message.length for _, message in jobs)  # Copies.
    return 300.0 + 1000.0 * deadly + turns
