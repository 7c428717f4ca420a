"""What the fake was told and answered, told to a real server: there must be no difference."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.sim.fake_redis import FakeRedis
from tests.sim.play import Play

from giliran import store

if TYPE_CHECKING:
    from tests.sim.clocked import Clocked

TEXTS = {script.name: script.text for script in store.SCRIPTS}


def history(seed: int) -> Play:
    """Play one wave of a seed; its server has the log."""
    return Play(seed).run(steps=1)


def differences(clocked: Clocked, lines: list[tuple[Any, ...]]) -> list[str]:
    """Tell a real server all lines of a log; answer where it differs from the fake.

    A real script takes some microseconds on top of the told time. So time is told in whole
    milliseconds, and fences, which count microseconds, are compared by their order in each
    resource. A script that the machine held up for a millisecond would differ: what differs is
    told again, twice.
    """
    found = _differences(clocked, lines)
    for _ in range(2):
        found = found and _differences(clocked, lines)
    return found


def _differences(clocked: Clocked, lines: list[tuple[Any, ...]]) -> list[str]:
    client, fake, found = clocked.client, FakeRedis(), list[str]()
    ours: dict[str, Fences] = defaultdict(Fences)
    theirs: dict[str, Fences] = defaultdict(Fences)
    client.flushall()
    for number, (what, us, *rest) in enumerate(lines):
        fake.us = us // 1000 * 1000
        clocked.set(fake.us)
        if what == "flush":
            client.flushall()
            fake.flush()
        elif what == "put":
            _put(client, fake, *rest)
        else:
            script, keys, args, _ = rest
            told = theirs[keys[0]].number(client.eval(TEXTS[script], len(keys), *keys, *args))
            wanted = ours[keys[0]].number(fake.run(TEXTS[script], keys, args))
            if told != wanted:
                found.append(f"line {number}: {script} {args}: fake {wanted}, real {told}")
    return found + _compare(client, fake, ours, theirs)


class Fences:
    """Numbers fences in the order in which they are first seen."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def number(self, value: Any) -> str:
        """Write a value with every fence replaced by its number."""
        return re.sub(r"\b\d{16}\b", self._one, repr(value))

    def _one(self, found: re.Match[str]) -> str:
        return self._seen.setdefault(found[0], f"#{len(self._seen)}")


def _put(client: Any, fake: FakeRedis, key: str, value: Any, end: int | None) -> None:
    """Give both sides a value that was lost, or came back from a stale copy."""
    client.delete(key)
    fake.values.pop(key, None)
    fake.ends.pop(key, None)
    if value is None:
        return
    if isinstance(value, str):
        client.set(key, value)
    else:
        client.hset(key, mapping=value)
    fake.values[key] = value
    if end is not None:
        fake.ends[key] = end
        client.pexpireat(key, end)


def _compare(
    client: Any, fake: FakeRedis, ours: dict[str, Fences], theirs: dict[str, Fences]
) -> list[str]:
    found: list[str] = []
    for key in sorted({*fake.values, *client.keys("*")}):
        mine = fake.peek(key)
        life = None if mine is None else fake.ends[key] - fake.us // 1000
        other = client.hgetall(key) if client.type(key) == "hash" else client.get(key)
        lives = client.pttl(key) if other else None
        lock_key = key.removeprefix("{").partition("}")[0]
        told, wanted = theirs[lock_key].number(_flat(other)), ours[lock_key].number(_flat(mine))
        if (told, lives) != (wanted, life):
            found.append(f"{key}: fake {wanted} for {life} ms, real {told} for {lives} ms")
    return found


def _flat(value: Any) -> Any:
    return sorted(value.items()) if isinstance(value, dict) else value or None
