"""What the fake was told and answered, told to a real server: there must be no difference."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

from tests.sim.fake_redis import FakeRedis, SortedSet
from tests.sim.play import Play
from tests.sim.violation import Violation

from giliran import scripts

if TYPE_CHECKING:
    from tests.sim.clocked import Clocked

US = re.compile(r"\b\d{16}\b")
TEXTS = {script.name: script.text for script in scripts.ALL}


def history(seed: int) -> Play:
    """Play one wave of a seed; its server has the log, whatever is wrong with the play."""
    play = Play(seed)
    with contextlib.suppress(Violation):
        play.run(steps=1)
    return play


def differences(clocked: Clocked, lines: list[tuple[Any, ...]]) -> list[str]:
    """Tell a real server all lines of a log; answer where it differs from the fake.

    A real script takes some microseconds on top of the told time. So fences and ranks, which count
    microseconds, are paired when they are first told, and translated when they are told again. A
    script that the machine held up for long would differ: what differs is told again, twice.
    """
    found = _differences(clocked, lines)
    for _ in range(2):
        found = found and _differences(clocked, lines)
    return found


def _differences(clocked: Clocked, lines: list[tuple[Any, ...]]) -> list[str]:
    client, fake, found = clocked.client, FakeRedis(), list[str]()
    pairs = Pairs()
    client.flushall()
    for number, (what, us, *rest) in enumerate(lines):
        fake.us = us
        clocked.set(us // 1000 * 1000)
        if what == "flush":
            client.flushall()
            fake.flush()
        elif what == "expire":
            for key in list(fake.values):
                fake.peek(key)
                client.exists(key)
        elif what == "put":
            _put(client, fake, pairs, *rest)
        else:
            script, keys, args, reply = rest
            wanted = fake.run(TEXTS[script], keys, args)
            told = client.eval(TEXTS[script], len(keys), *keys, *map(pairs.translate, args))
            if wanted != reply or not pairs.same(wanted, told):
                found.append(
                    f"line {number}: {script} {args}: world {reply}, fake {wanted}, real {told}"
                )
    return found + _compare(client, fake, pairs)


class Pairs:
    """Which number of microseconds of a real server stands for which of the fake."""

    def __init__(self) -> None:
        self._theirs: dict[str, str] = {}

    def translate(self, text: str) -> str:
        """Write a text of the fake as the real server would."""
        return US.sub(lambda found: self._theirs.get(found[0], found[0]), text)

    def same(self, mine: Any, theirs: Any) -> bool:
        """Whether two values are the same but for microseconds, and note which are paired."""
        ours, told = repr(mine), repr(theirs)
        numbers, others = US.findall(ours), US.findall(told)
        if US.sub("#", ours) != US.sub("#", told) or len(numbers) != len(others):
            return False
        for number, other in zip(numbers, others, strict=True):
            self._theirs.setdefault(number, other)
        return self.translate(ours) == told


def _put(client: Any, fake: FakeRedis, pairs: Pairs, key: str, value: Any, end: int | None) -> None:
    """Give both sides a value that was lost, or came back from a stale copy."""
    client.delete(key)
    fake.values.pop(key, None)
    fake.ends.pop(key, None)
    match value:
        case None:
            return
        case str():
            client.set(key, pairs.translate(value))
        case list():
            client.rpush(key, *map(pairs.translate, value))
        case SortedSet():
            ranks = {one: int(pairs.translate(f"{rank:.0f}")) for one, rank in value.items()}
            client.zadd(key, ranks)
        case _:
            client.hset(key, mapping={name: pairs.translate(one) for name, one in value.items()})
    fake.values[key] = value
    if end is not None:
        fake.ends[key] = end
        client.pexpireat(key, end)


def _compare(client: Any, fake: FakeRedis, pairs: Pairs) -> list[str]:
    found: list[str] = []
    for key in sorted({*fake.values, *client.keys("*")}):
        mine, theirs = fake.peek(key), _read(client, key)
        life = (fake.ends[key] - fake.us // 1000 if key in fake.ends else -1) if mine else -2
        lives = client.pttl(key)
        if not pairs.same(_flat(mine), _flat(theirs)) or lives != life:
            found.append(f"{key}: fake {mine} for {life} ms, real {theirs} for {lives} ms")
    return found


def _read(client: Any, key: str) -> Any:
    match client.type(key):
        case "string":
            return client.get(key)
        case "list":
            return client.lrange(key, 0, -1)
        case "zset":
            return SortedSet(client.zrange(key, 0, -1, withscores=True))
        case "hash":
            return client.hgetall(key)
        case _:
            return None


def _flat(value: Any) -> Any:
    if isinstance(value, SortedSet):
        return [(one, f"{value[one]:.0f}") for one in value.ranked()]
    return sorted(value.items()) if isinstance(value, dict) else value or None
