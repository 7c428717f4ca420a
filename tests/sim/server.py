"""The one server of a world: its clock, its bad phases, what it loses, and a log of it all."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.sim.fake_redis import EPOCH_US, FakeRedis, ScriptError

from giliran.errors import StoreUnavailable
from giliran.steps import Call

REMEMBERED = 200
LOGGED = 120


@dataclass(slots=True)
class Log:
    """The first lines of what the server was told, to be told to a real one."""

    lines: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])

    def add(self, *line: Any) -> None:
        if len(self.lines) < LOGGED:
            self.lines.append(line)


class Server:
    """Runs scripts as its phase allows.

    Attributes:
        jumped_us: how far its clock is ahead of true time.
        phase: "", "down", "LOADING", or what the fake can refuse.
    """

    def __init__(self) -> None:
        self.redis = FakeRedis()
        self.log = Log()
        self.jumped_us = 0
        self.phase = ""
        self._until = 0.0
        self._told_us: set[int] = set()
        self._undo: deque[list[tuple[str, Any, int | None]]] = deque(maxlen=REMEMBERED)

    def tick(self, time: float) -> None:
        """Follow true time."""
        us = EPOCH_US + int(time * 1e6) + self.jumped_us
        while us in self._told_us:
            us += 1  # So that a number tells which script it comes from.
        self._told_us.add(us)
        self.redis.us = us
        if self.phase and time >= self._until:
            self.heal()

    def enter(self, phase: str, until: float) -> None:
        """Refuse, in one way, until some time."""
        self.phase, self._until = phase, until
        self.redis.refuses = phase if phase in ("OOM", "MISCONF", "READONLY") else ""

    def heal(self) -> None:
        """Serve everything again."""
        self.phase = self.redis.refuses = ""

    # ------------------------------------------------------------------ scripts

    def run(self, call: Call[Any]) -> Any:
        """Run a script.

        Raises:
            StoreUnavailable: as the transport would make of the server's error.
        """
        if self.phase == "down":
            # A refused connection looks like a reset one: redis-py does not tell them apart.
            raise StoreUnavailable("unreachable", "connection refused", ambiguous=True)
        if self.phase == "LOADING":
            raise StoreUnavailable("LOADING", "loading the dataset in memory", ambiguous=False)
        redis = self.redis
        try:
            reply = redis.run(call.script.text, call.keys, call.args)
        except ScriptError as error:
            if not self.phase:
                raise
            raise StoreUnavailable(error.code, str(error), ambiguous=False) from error
        changed = [
            (key, old, end) for key, (old, end) in redis.before.items()
            if redis.values.get(key) is not old or redis.ends.get(key) != end
        ]  # fmt: skip
        if changed:
            self._undo.append(changed)
        if self.phase:  # A real server is never told to refuse.
            self._log_puts([key for key, _, _ in changed])
        else:
            self.log.add("run", redis.us, call.script.name, call.keys, call.args, reply)
        return reply

    def _log_puts(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.log.add("put", self.redis.us, key, self.redis.peek(key), self.redis.ends.get(key))

    # ------------------------------------------------------------------ losses

    def forget_last(self, writes: int) -> None:
        """Go on with a copy that missed the last writes."""
        changed: set[str] = set()
        for _ in range(min(writes, len(self._undo))):
            for key, value, end in self._undo.pop():
                changed.add(key)
                self._put(key, value, end)
        self._log_puts(sorted(changed))

    def forget_all(self) -> None:
        """Come back without any data."""
        self.redis.flush()
        self._undo.clear()
        self.log.add("flush", self.redis.us)

    def forget(self, key: str) -> None:
        """Lose a single key."""
        self._put(key, None, None)
        self.log.add("put", self.redis.us, key, None, None)

    def jump(self, seconds: float) -> None:
        """Set the clock; what has ended does not come back with it, see `Oracle.expire`."""
        self.log.add("expire", self.redis.us)
        self.jumped_us += int(seconds * 1e6)
        self.redis.us += int(seconds * 1e6)

    def _put(self, key: str, value: Any, end: int | None) -> None:
        self.redis.values.pop(key, None)
        self.redis.ends.pop(key, None)
        if value is not None:
            self.redis.values[key] = value
            if end is not None:
                self.redis.ends[key] = end
