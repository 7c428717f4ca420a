"""One way to give keys, run a script and look at the keys after, on the fake and on servers."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pytest
import redis
from redis import exceptions
from tests.sim.fake_redis import FakeRedis, ScriptError, SortedSet, Value

from giliran import keys

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from giliran.steps import Script

FENCE, RECORD = "{K}:fence", "{K}:rec:i"
LINE, PARKED = "{K}:line", "{K}:parked"
DUE, DEAD = "{K}:due", "{K}:dead"
INDEX = keys.index("celery:q")
KEYS: dict[str, tuple[str, ...]] = {
    "claim": ("K", FENCE, LINE, PARKED, RECORD),
    "renew": ("K",),
    "finish": ("K", LINE, PARKED, RECORD),
    "park": ("K", LINE, PARKED, DUE),
    "leave": ("K", LINE, PARKED),
    "offer": (LINE, PARKED, DUE, DEAD),
    "sweep": ("K", LINE, PARKED, DUE, DEAD),
    "reclaim": ("K", FENCE, LINE, PARKED),
    "lines": INDEX,
}


@dataclass(frozen=True, slots=True)
class Key:
    """A key's value and how many ms it still lives (None: for ever)."""

    value: Value
    px: int | None = 60_000


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table. `@-500` in a given value is the server's time in ms, less 500.

    `reply` is matched item by item as regular expressions, without the time in front; a string is
    the prefix of an error. Keys that `after` does not name must be as they were; None means gone.
    Values in `after` are regular expressions too, for the scores of a sorted set in a plain dict.
    `keys` are those in `KEYS` unless a row says others.
    """

    name: str
    args: Sequence[str]
    reply: Sequence[str] | str
    given: Mapping[str, Key] = field(default_factory=dict[str, Key])
    after: Mapping[str, Key | None] = field(default_factory=dict[str, Key | None])
    keys: Sequence[str] = ()


class Backend(Protocol):
    """Something that runs scripts."""

    def now_ms(self) -> int: ...
    def give(self, key: str, value: Value, px: int | None) -> None: ...
    def run(self, script: Script, args: Sequence[str], keys: Sequence[str] = ()) -> Any: ...
    def dump(self) -> dict[str, Key]: ...
    def fill_up(self) -> None: ...
    def flush(self) -> None: ...
    def remove(self, key: str) -> None: ...


class OnFake:
    """The fake of the simulation."""

    def __init__(self) -> None:
        self.redis = FakeRedis()

    def now_ms(self) -> int:
        return self.redis.us // 1000

    def give(self, key: str, value: Value, px: int | None) -> None:
        self.redis.values[key] = value
        if px is not None:
            self.redis.ends[key] = self.now_ms() + px

    def run(self, script: Script, args: Sequence[str], keys: Sequence[str] = ()) -> Any:
        return self.redis.run(script.text, keys or KEYS[script.name], args)

    def dump(self) -> dict[str, Key]:
        there = [key for key in list(self.redis.values) if self.redis.peek(key) is not None]
        ends, now = self.redis.ends, self.now_ms()
        return {
            key: Key(self.redis.values[key], ends[key] - now if key in ends else None)
            for key in there
        }

    def fill_up(self) -> None:
        self.redis.refuses = "OOM"

    def flush(self) -> None:
        self.redis.flush()
        self.redis.us += 1000

    def remove(self, key: str) -> None:
        del self.redis.values[key], self.redis.ends[key]


class OnServer:
    """A real server. Scripts are run by another user if there is a `runner`."""

    def __init__(self, client: redis.Redis, runner: redis.Redis | None = None) -> None:
        self.client: Any = client
        self.runner: Any = runner or client

    def now_ms(self) -> int:
        seconds, us = self.client.time()
        return int(seconds) * 1000 + int(us) // 1000

    def give(self, key: str, value: Value, px: int | None) -> None:
        if isinstance(value, str):
            self.client.set(key, value)
        elif isinstance(value, SortedSet):
            self.client.zadd(key, value)
        elif isinstance(value, list):
            self.client.rpush(key, *value)
        else:
            self.client.hset(key, mapping=value)
        if px is not None:
            self.client.pexpire(key, px)

    def run(self, script: Script, args: Sequence[str], keys: Sequence[str] = ()) -> Any:
        named = keys or KEYS[script.name]
        try:
            return self.runner.eval(script.text, len(named), *named, *args)
        except exceptions.OutOfMemoryError:
            raise ScriptError("OOM") from None
        except exceptions.ResponseError as error:
            raise ScriptError(str(error)) from None

    def dump(self) -> dict[str, Key]:
        found: dict[str, Key] = {}
        for key in self.client.keys("*"):
            kind, px = self.client.type(key), self.client.pttl(key)
            found[key] = Key(self._value(key, kind), None if px < 0 else px)
        return found

    def _value(self, key: str, kind: str) -> Value:
        if kind == "zset":
            return SortedSet(self.client.zrange(key, 0, -1, withscores=True))
        if kind == "list":
            items: list[str] = self.client.lrange(key, 0, -1)
            return items
        value: Value = self.client.get(key) if kind == "string" else self.client.hgetall(key)
        return value

    def fill_up(self) -> None:
        self.client.config_set("maxmemory-policy", "noeviction")
        self.client.config_set("maxmemory", 1)

    def flush(self) -> None:
        self.client.flushall()

    def remove(self, key: str) -> None:
        self.client.delete(key)


@contextmanager
def without(command: str, url: str) -> Generator[OnServer]:
    """A server whose scripts are run by a user that may not use a command."""
    rights = ("on", "nopass", "~*", "+@all", f"-{command}")
    with redis.Redis.from_url(url, decode_responses=True) as client:
        client.execute_command("ACL", "SETUSER", "half", *rights)
        with redis.Redis.from_url(
            url, username="half", password="x", decode_responses=True
        ) as runner:
            yield OnServer(client, runner)


def give_all(backend: Backend, given: Mapping[str, Key]) -> None:
    """Put keys in, with the server's time for `@-500`."""
    for key, one in given.items():
        value = one.value
        if isinstance(value, str):
            value = _at(backend, value)
        elif isinstance(value, dict) and not isinstance(value, SortedSet):
            value = {name: _at(backend, text) for name, text in value.items()}
        backend.give(key, value, one.px)


def _at(backend: Backend, text: str) -> str:
    return re.sub(r"@(-?\d+)", lambda found: str(backend.now_ms() + int(found[1])), text)


def values(backend: Backend) -> dict[str, Value]:
    """Look at all keys, however long they live."""
    return {key: found.value for key, found in backend.dump().items()}


def each(rows: Sequence[Row]) -> pytest.MarkDecorator:
    """Make a test of every line of a table."""
    return pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in rows])


def check(backend: Backend, script: Script, row: Row) -> None:
    """Play one line of a table."""
    give_all(backend, row.given)
    before = backend.dump()
    try:
        reply = backend.run(script, row.args, row.keys)
    except ScriptError as error:
        reply = str(error)
        assert isinstance(row.reply, str), reply
        assert reply.startswith(row.reply), reply
    else:
        assert not isinstance(row.reply, str), reply
        _check_reply(backend, reply, row.reply)
    _check_keys(before, backend.dump(), row.after)


def _check_reply(backend: Backend, reply: Any, expected: Sequence[str]) -> None:
    server_ms, *told = reply if isinstance(reply, list) else [reply]
    if server_ms > 1:
        assert 0 <= backend.now_ms() - server_ms < 5000
    else:
        told = [server_ms]
    told = [str(item) for item in told]
    matched = [re.fullmatch(one, item) for one, item in zip(expected, told, strict=True)]
    assert all(matched), told


def _check_keys(
    before: Mapping[str, Key], after: Mapping[str, Key], expected: Mapping[str, Key | None]
) -> None:
    for key in before.keys() | after.keys() | expected.keys():
        wanted, found = expected.get(key, before.get(key)), after.get(key)
        if wanted is None or found is None:
            assert wanted is found, f"{key}: {found}, not {wanted}"
            continue
        _check_value(key, found.value, wanted.value, exact=key not in expected)
        if wanted.px is None or found.px is None:
            assert wanted.px is found.px, f"{key}: lives {found.px} ms, not {wanted.px}"
        else:
            assert -5000 < found.px - wanted.px <= 0, f"{key}: {found.px} ms, not {wanted.px}"


def _check_value(key: str, found: Value, wanted: Value, *, exact: bool) -> None:
    if exact or isinstance(wanted, SortedSet):
        assert found == wanted, key
        return
    patterns, texts = _texts(wanted), _texts(found)
    assert patterns.keys() == texts.keys(), f"{key}: {found}"
    for name, pattern in patterns.items():
        assert re.fullmatch(pattern, texts[name]), f"{key} {name}={texts[name]}"


def _texts(value: Value) -> dict[str, str]:
    """Write what a key holds, by name, place or score, as texts."""
    if isinstance(value, str):
        return {"": value}
    if isinstance(value, list):
        return {str(place): item for place, item in enumerate(value)}
    if isinstance(value, SortedSet):
        return {member: f"{score:.0f}" for member, score in value.items()}
    return value
