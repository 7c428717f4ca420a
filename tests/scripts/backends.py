"""One way to give keys, run a script and look at the keys after, on the fake and on servers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import redis
from redis import exceptions
from tests.sim.fake_redis import FakeRedis, ScriptError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from giliran.steps import Script

Value = str | dict[str, str]


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
    """

    name: str
    args: Sequence[str]
    reply: Sequence[str] | str
    given: Mapping[str, Key] = field(default_factory=dict[str, Key])
    after: Mapping[str, Key | None] = field(default_factory=dict[str, Key | None])
    keys: Sequence[str] = ("K", "{K}:fence", "{K}:rec:i")


class Backend(Protocol):
    """Something that runs scripts."""

    def now_ms(self) -> int: ...
    def give(self, key: str, value: Value, px: int | None) -> None: ...
    def run(self, script: Script, keys: Sequence[str], args: Sequence[str]) -> Any: ...
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

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str]) -> Any:
        return self.redis.run(script.text, keys, args)

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
    """A real server."""

    def __init__(self, client: redis.Redis) -> None:
        self.client: Any = client

    def now_ms(self) -> int:
        seconds, us = self.client.time()
        return int(seconds) * 1000 + int(us) // 1000

    def give(self, key: str, value: Value, px: int | None) -> None:
        if isinstance(value, str):
            self.client.set(key, value)
        else:
            self.client.hset(key, mapping=value)
        if px is not None:
            self.client.pexpire(key, px)

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str]) -> Any:
        try:
            return self.client.eval(script.text, len(keys), *keys, *args)
        except exceptions.OutOfMemoryError:
            raise ScriptError("OOM") from None
        except exceptions.ResponseError as error:
            raise ScriptError(str(error)) from None

    def dump(self) -> dict[str, Key]:
        found: dict[str, Key] = {}
        for key in self.client.keys("*"):
            kind, px = self.client.type(key), self.client.pttl(key)
            value = self.client.get(key) if kind == "string" else self.client.hgetall(key)
            found[key] = Key(value, None if px < 0 else px)
        return found

    def fill_up(self) -> None:
        self.client.config_set("maxmemory-policy", "noeviction")
        self.client.config_set("maxmemory", 1)

    def flush(self) -> None:
        self.client.flushall()

    def remove(self, key: str) -> None:
        self.client.delete(key)


def at(backend: Backend, value: Value) -> Value:
    """Put the server's time in for `@-500`."""
    if isinstance(value, dict):
        return value
    return re.sub(r"@(-?\d+)", lambda found: str(backend.now_ms() + int(found[1])), value)


def check(backend: Backend, script: Script, row: Row) -> None:
    """Play one line of a table."""
    for key, given in row.given.items():
        backend.give(key, at(backend, given.value), given.px)
    before = backend.dump()
    try:
        reply = backend.run(script, row.keys, row.args)
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
    if server_ms > 0:
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
    if exact:
        assert found == wanted, key
    elif isinstance(wanted, dict):
        assert isinstance(found, dict)
        assert found.keys() == wanted.keys(), key
        for name, pattern in wanted.items():
            assert re.fullmatch(pattern, found[name]), f"{key} {name}={found[name]}"
    else:
        assert isinstance(found, str)
        assert re.fullmatch(wanted, found), f"{key}: {found}"
