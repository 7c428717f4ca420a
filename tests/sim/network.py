"""Carries calls to the server and replies back, in whatever order a wave's faults want."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from tests.sim import said
from tests.sim.plan import Rates
from tests.sim.violation import Violation

from giliran.errors import StoreUnavailable
from giliran.steps import Call, Listen

if TYPE_CHECKING:
    from tests.sim.world import Actor, World


# What becomes of a request: name, seconds to the server, seconds back, and whether the caller
# hears of a failure early (a reset) or reads a reply past its deadline (a blocking client).
Fate = list[Any]
PLAIN: Fate = ["", 0.001, 0.001, False]
REQUESTS = ("request_lost", "reply_lost", "late_reply", "late_request", "doubled", "slow")
TROUBLES = (
    "cut", "restart", "restart_behind", "restart_empty", "failover", "evict", "operator",
    "clock_back", "clock_forward", "oom", "misconf", "readonly", "loading",
)  # fmt: skip
PHASES = {"oom": "OOM", "misconf": "MISCONF", "readonly": "READONLY", "loading": "LOADING"}


class Network:
    """Sends what actors call."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._bells: dict[str, tuple[Actor, int]] = {}
        world.carriers.update({Call: self.send, Listen: self.listen})

    def send(self, actor: Actor, call: Call[Any]) -> None:
        """Decide on a request's fate, and on what else happens just then."""
        world, rates = self.world, self.world.rates
        choose = world.choices.of
        if call.script.name == "park" and world.freezes(actor, call):
            return
        world.oracle.note_sent(call)
        if call.script.name == "offer" and call.args[2] != actor.became:
            raise Violation(f"{actor.name} tells {call.args[2]!r}, the broker {actor.became!r}")
        name = f"{actor.name} call {actor.calls}"
        trouble: list[Any] = choose(f"{name} meets", [], lambda luck: _trouble(luck, rates))
        fate: Fate = choose(name, PLAIN, lambda luck: _fate(luck, rates, call.timeout))
        world.note(actor.name, (f"{fate[0]} {' '.join(map(str, trouble))}", call))
        if trouble:
            self._strike(actor, call, *trouble)
        if fate[0]:
            world.happened[fate[0]] += 1
        if actor.process.cut_until > world.time:
            fate = ["request_lost", *fate[1:]]
        self._dispatch(actor, call, *fate)

    def _dispatch(
        self, actor: Actor, call: Call[Any], name: str, go: float, back: float, flag: bool
    ) -> None:
        world = self.world
        deadline = world.time + call.timeout
        if name in ("request_lost", "reply_lost", "late_request"):
            failed = min(deadline, world.time + go + 0.01) if flag else deadline
            world.at(failed, world.resume, actor, actor.turn, _unanswered())
            if name == "request_lost":
                return
            if name == "late_request":
                world.oracle.stray.add(said.token(call))
                go = call.timeout + go
            world.at(world.time + go, self._arrive, None, 0, call, 0.0)
            return
        if name == "doubled":
            world.oracle.stray.add(said.token(call))
            world.oracle.doubled.add(said.token(call))
            world.at(world.time + go + back, self._arrive, None, 0, call, 0.0)
            back = 0.001
        if not flag:
            world.at(deadline, world.resume, actor, actor.turn, _unanswered())
        world.at(world.time + go, self._arrive, actor, actor.turn, call, back)

    def _arrive(self, actor: Actor | None, turn: int, call: Call[Any], back: float) -> None:
        world = self.world
        try:
            reply = world.oracle.apply(call)
        except StoreUnavailable as refusal:
            world.note("redis", f"refuses {call.script.name} of {call.args[0][-4:]}: {refusal}")
            if actor is not None:
                world.at(world.time + back, world.resume, actor, turn, refusal)
            return
        world.note("redis" if actor else "redis, late", (call.script.name, call.args[0], reply))
        world.oracle.check_trust(said.resource(call))
        if self._bells:
            self._ring()
        if actor is not None:
            world.at(world.time + back, self._return, actor, turn, call, reply)

    def _return(self, actor: Actor, turn: int, call: Call[Any], reply: Any) -> None:
        if actor.turn != turn or actor.over:
            self.world.happened["reply came too late to be read"] += 1
            return
        self.world.oracle.note_answer(call, reply)
        actor.owes |= said.set_aside(call, reply)
        self.world.resume(actor, turn, call.decode(reply))

    # ------------------------------------------------------------------ bells

    def listen(self, actor: Actor, step: Listen) -> None:
        """Wait for a bell, which one of the callers rings; the ring may get lost."""
        world, process = self.world, actor.process
        self._bells[step.key] = actor, actor.turn
        actor.listens = True
        until = max(world.time, (step.until - process.offset) / process.rate)
        world.at(until, self._silence, step.key, actor, actor.turn)
        self._ring()

    def _silence(self, key: str, actor: Actor, turn: int) -> None:
        if self._bells.get(key) == (actor, turn):
            del self._bells[key]
            actor.listens = False
        self.world.resume(actor, turn, False)

    def _ring(self) -> None:
        world = self.world
        for key in [key for key in self._bells if world.server.redis.peek(key)]:
            actor, turn = self._bells.pop(key)
            actor.listens = False
            if actor.over or world.server.phase:
                continue
            world.server.forget(key)  # BLPOP takes it, whoever then hears of it.
            if actor.process.cut_until > world.time:
                continue
            world.happened["bell"] += 1
            world.at(world.time + 0.001, world.resume, actor, turn, True)

    # ------------------------------------------------------------------ the server's troubles

    def _strike(self, actor: Actor, call: Call[Any], name: str, amount: float) -> None:
        world, server = self.world, self.world.server
        world.happened[name] += 1
        if name == "cut":
            actor.process.cut_until = world.time + amount
        elif name in PHASES:
            server.enter(PHASES[name], world.time + amount)
        elif name in ("evict", "operator"):
            key = call.keys[0] if name == "operator" else call.keys[int(amount) % len(call.keys)]
            server.forget(key)
            world.oracle.lose(said.resource(call))
        elif name in ("clock_back", "clock_forward"):
            world.oracle.expire()
            server.jump(amount)
            world.oracle.clock_moved(forward=amount > 0)
        else:
            self._restart(name, amount)

    def _restart(self, name: str, amount: float) -> None:
        """Come back after a while: with all data, with a prefix of it, or empty."""
        world, server = self.world, self.world.server
        writes = int(amount * 10) % 40 + 1
        if name == "restart_empty":
            server.forget_all()
            world.oracle.lose(None)
        elif name in ("restart_behind", "failover"):
            server.forget_last(writes if name == "restart_behind" else writes % 5 + 1)
            world.oracle.lose(None)
        server.enter("down", world.time + amount)


def _unanswered() -> StoreUnavailable:
    return StoreUnavailable("unreachable", "no answer", ambiguous=True)


def _trouble(luck: random.Random, rates: Rates) -> list[Any]:
    fate = luck.random()
    for name in TROUBLES:
        fate -= getattr(rates, name)
        if fate < 0:
            amount = 0.2 * 100.0 ** luck.random()
            if name.startswith("clock"):
                amount *= 3 if name == "clock_forward" else -3
            return [name, round(amount, 3)]
    return []


def _fate(luck: random.Random, rates: Rates, timeout: float) -> Fate:
    fate = luck.random()
    for name in REQUESTS:
        fate -= getattr(rates, name)
        if fate < 0:
            break
    else:
        return PLAIN
    go, back = luck.expovariate(1000.0), luck.expovariate(1000.0)
    if name == "late_request":
        go = luck.uniform(0.0, 60.0) if luck.random() < 0.5 else luck.expovariate(10.0)
    elif name == "doubled":
        back = luck.uniform(0.0, 60.0) if luck.random() < 0.5 else luck.expovariate(10.0)
    elif name == "late_reply":
        back = luck.uniform(0.0, 3.0 * timeout)
    elif name == "slow":
        go, back = luck.uniform(0.0, timeout / 2), luck.uniform(0.0, timeout / 2)
    return [name, round(go, 6), round(back, 6), luck.random() < 0.5]
