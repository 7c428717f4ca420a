"""Harm that any run can do: to lines, by script, and to the server's connections; and its undoing.

A run adds what it can do to its own kind of workers.
"""

from __future__ import annotations

import heapq
import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any

import redis

from chaos.history import Recorder
from chaos.plan import Clockwork
from giliran import scripts
from giliran.embedded import EmbeddedServer
from giliran.testing._proxy import FaultProxy, Rule

EVERYTHING = b"*"  # Every request begins with it.
MANY = 10**9


class Strikes:
    """Requests of one script that lose their reply, are lost, or arrive twice."""

    def __init__(self) -> None:
        self._rules: list[tuple[str, Rule]] = []

    def add(self, effect: str, script: str, sha: str, proxy: FaultProxy) -> None:
        """Let the next request of a script on this line meet its fate."""
        act = {
            "drop reply": proxy.drop_reply,
            "drop request": proxy.drop_request,
            "duplicate": proxy.duplicate,
        }[effect]
        self._rules.append((f"{effect} {script}", act(sha.encode())))

    def calm(self) -> None:
        """Let no rule strike any more."""
        for _, rule in self._rules:
            rule.left = 0

    def hits(self) -> Counter[str]:
        """Count what struck, by effect and script."""
        counts: Counter[str] = Counter()
        for name, rule in self._rules:
            counts[name] += rule.hits
        return counts


class Faults(ABC):
    """Carries out a schedule.

    Attributes:
        acts: what is done, by the names of the schedule; given the seconds since the start.
        shas: the scripts whose requests are struck.
        counts: what was done how often.
        luck: what draws victims and durations.
    """

    def __init__(self, server: EmbeddedServer, recorder: Recorder, clockwork: Clockwork) -> None:
        self.luck = clockwork.luck
        self.counts: Counter[str] = Counter()
        self.shas = {script.name: script.sha for script in scripts.ALL}
        self.log = recorder.log
        self._clockwork = clockwork
        self._undo: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._strikes = Strikes()
        self._admin: Any = redis.Redis(port=server.port, socket_timeout=2.0)
        self.acts: dict[str, Callable[[float], None]] = {
            "blackhole": self._blackhole,
            "one-way": self._one_way,
            "refuse": self._refuse,
            "reset": self._reset,
            "drop reply": lambda _: self._strike("drop reply"),
            "drop request": lambda _: self._strike("drop request"),
            "duplicate": lambda _: self._strike("duplicate"),
            "script flush": lambda _: self._administer("SCRIPT", "FLUSH"),
            "client kill": lambda _: self._administer("CLIENT", "KILL", "TYPE", "normal"),
            "client pause": lambda _: self._administer(
                "CLIENT", "PAUSE", self.luck.randrange(200, 900)
            ),
        }

    @abstractmethod
    def line(self) -> tuple[str, FaultProxy]:
        """Choose a line to do harm to, and name it."""

    def line_of(self, script: str) -> FaultProxy:
        """Choose a line on which a script may be called."""
        del script
        return self.line()[1]

    def step(self, elapsed: float) -> None:
        """Do what is due, and undo what has lasted long enough."""
        while self._undo and self._undo[0][0] <= elapsed:
            heapq.heappop(self._undo)[2]()
        for name in self._clockwork.due(elapsed):
            self.acts[name](elapsed)

    def heal(self) -> None:
        """Undo everything, and write down which requests were struck."""
        while self._undo:
            heapq.heappop(self._undo)[2]()
        self._strikes.calm()
        self._administer("CLIENT", "UNPAUSE")
        for name, hits in sorted(self._strikes.hits().items()):
            self.log("struck", name=name, hits=hits)
        self._admin.close()

    def count(self, name: str, **more: object) -> None:
        """Note that something was done."""
        self.counts[name] += 1
        self.log("nemesis", name=name, **more)

    def later(self, at: float, undo: Callable[[], None]) -> None:
        """Undo something at that many seconds after the start, or when healing."""
        heapq.heappush(self._undo, (at, next(self._order), undo))

    def _cut_off(self, name: str) -> FaultProxy:
        of, proxy = self.line()
        self.count(name, of=of)
        self.counts["partition or reset"] += 1
        return proxy

    def _blackhole(self, elapsed: float) -> None:
        proxy = self._cut_off("blackhole")
        proxy.blackhole(on=True)
        self.later(elapsed + self.luck.uniform(0.5, 2.5), lambda: proxy.blackhole(on=False))

    def _one_way(self, elapsed: float) -> None:
        """Requests arrive, and replies are as good as lost: they come when nobody listens."""
        rule = self._cut_off("one-way").delay_reply(EVERYTHING, 3.0, MANY)

        def lift() -> None:
            rule.left = 0

        self.later(elapsed + self.luck.uniform(0.5, 2.0), lift)

    def _refuse(self, elapsed: float) -> None:
        proxy = self._cut_off("refuse")
        proxy.refuse(on=True)
        proxy.reset_all()
        self.later(elapsed + self.luck.uniform(0.5, 2.0), lambda: proxy.refuse(on=False))

    def _reset(self, elapsed: float) -> None:
        del elapsed
        self._cut_off("reset").reset_all()

    def _strike(self, effect: str) -> None:
        script = self.luck.choice(sorted(self.shas))
        self._strikes.add(effect, script, self.shas[script], self.line_of(script))

    def _administer(self, *command: str | int) -> None:
        try:
            self._admin.execute_command(*command)
        except redis.RedisError:
            return  # It has just been killed; the next time will do.
        self.count(" ".join(str(word) for word in command[:2]).lower())
