"""Plays Redis and the heartbeat in this process: no server, no threads, no time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Generator
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from giliran.beats import Beat
from giliran.errors import StoreUnavailable
from giliran.interrupt import Gate
from giliran.lease import Lease
from giliran.steps import Call, Program
from giliran.turns import Giliran

T = TypeVar("T")

_OTHER = ";type=another job;job=;host=elsewhere;pid=0"


class FakeStore:
    """What guards see as Redis. Grants every free resource and replays what was recorded.

    Keys are named as stored; `*` and `?` match as in a shell.

    Attributes:
        locks: lock key -> owner token, for what is held now.
        records: record key -> (state, fingerprint, result), for what is done.
    """

    def __init__(self, *, remembers: bool = True) -> None:
        self.locks: dict[str, str] = {}
        self.records: dict[str, tuple[str, str, str]] = {}
        self._remembers = remembers
        self._refused: list[str] = []
        self._away = ""
        self._fence = 0
        self._kept: dict[str, Beat] = {}

    # ------------------------------------------------------------------ what a test says

    def refuse(self, key: str) -> None:
        """From now on another job holds `key`."""
        self._refused.append(key)

    def grant(self, key: str) -> None:
        """Undo `refuse(key)`."""
        self._refused.remove(key)

    def lose(self, key: str, reason: str = "taken") -> None:
        """Take the lease of `key` from the body that holds it: it is interrupted at once.

        Raises:
            LookupError: if nobody holds it.
        """
        try:
            beat = self._kept[key]
        except KeyError:
            raise LookupError(f"nobody holds {key!r}; held now: {sorted(self._kept)}") from None
        self.locks.pop(key, None)
        beat.lease.lose(reason)
        beat.gate.fire()

    def go_away(self, code: str = "unreachable") -> None:
        """From now on Redis does not answer."""
        self._away = code

    def come_back(self) -> None:
        """Undo `go_away`."""
        self._away = ""

    # ------------------------------------------------------------------ what plays Redis

    def send(self, request: Call[T]) -> T:
        """Answer a call as its script would."""
        if self._away:
            raise StoreUnavailable(self._away, "the fake store is away", ambiguous=False)
        answer: dict[str, Callable[[Call[Any]], object]] = {
            "claim": self._claim,
            "renew": lambda _: 1,
            "finish": self._finish,
            "park": lambda _: [0, "full"],
            "leave": lambda _: [0],
        }
        return request.decode(answer[request.script.name](request))

    async def asend(self, request: Call[T]) -> T:
        """Same as `send`, awaited."""
        return self.send(request)

    def listen(self, _: str, seconds: float, /) -> bool:
        """Hear nothing, for as long as it takes."""
        time.sleep(seconds)
        return False

    async def alisten(self, _: str, seconds: float, /) -> bool:
        """Same as `listen`, awaited."""
        await asyncio.sleep(seconds)
        return False

    def _claim(self, request: Call[Any]) -> object:
        wanted, record = _resources(request, 4)
        token, fingerprint = request.args[0], request.args[6]
        done = self.records.get(record[0]) if record else None
        if done is not None:
            state, agreed, result = done
            return [0, "mismatch"] if agreed != fingerprint else [0, "done", state, result, 1]
        for number, key in enumerate(wanted):
            busy = self._remembers and self.locks.get(key, token) != token
            if busy or any(fnmatchcase(key, refused) for refused in self._refused):
                return [0, "busy", 30_000, _OTHER, 0, -1, 0, number]
        self._fence += 1
        self.locks.update(dict.fromkeys(wanted, token))
        return [0, "held", self._fence, 1, *(self._fence for _ in wanted[1:])]

    def _finish(self, request: Call[Any]) -> object:
        held, record = _resources(request, 3)
        token, _, ending, fingerprint, result, *_ = request.args
        for key in held:
            if self._remembers and self.locks.get(key) != token:
                return [0, "lost", "taken" if key in self.locks else "expired", ()]
        if record and ending in ("done", "failed") and self._remembers:
            self.records[record[0]] = (ending, fingerprint, result)
        for key in held:
            self.locks.pop(key, None)
        nobody: list[list[str]] = [[] for _ in held]
        return [0, "done", "", *nobody]

    # ------------------------------------------------------------------ what plays the heartbeat

    def lock(self) -> Any:
        """Make a mutex, as the heartbeat does."""
        return threading.Lock()

    def begin(self, lease: Lease, gate: Gate, program: Program[None]) -> Beat:
        """Keep a lease without end: time does not pass for it."""
        lease.trusted_until = float("inf")
        beat = Beat(lease, gate, program)
        self._kept.update(dict.fromkeys(lease.fences, beat))
        return beat

    def stop(self, beat: Beat) -> None:
        """Keep it no longer."""
        beat.over = True
        for key in beat.lease.fences:
            self._kept.pop(key, None)


def _resources(request: Call[Any], each: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tell lock keys and the record's key apart; a resource has `each` keys."""
    own = len(request.keys) // each * each
    return request.keys[:own:each], request.keys[own:]


@contextlib.contextmanager
def fake(turns: Giliran) -> Generator[FakeStore, None, None]:
    """Let a `FakeStore` play Redis for `turns` in this block."""
    store = FakeStore()
    with turns.played_by(store, store):
        yield store


@contextlib.contextmanager
def off(turns: Giliran) -> Generator[None, None, None]:
    """Let every guard of `turns` through in this block: no exclusion, no records, no Redis."""
    store = FakeStore(remembers=False)
    with turns.played_by(store, store):
        yield
