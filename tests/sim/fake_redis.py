"""A Redis in memory that runs the shipped scripts on real Lua 5.1, with a clock that is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lupa.lua51 import LuaRuntime, lua_type

EPOCH_US = 1_764_604_800_000_000

_GLUE = """
function(raw)
  redis = {
    pcall = raw,
    call = function(...)
      local reply = raw(...)
      if type(reply) == 'table' and reply.err then error(reply, 0) end
      return reply
    end,
    error_reply = function(text) return {err = text} end,
  }
  return function(script, keys, args)
    KEYS, ARGV = keys, args
    return pcall(script)
  end
end
"""
_WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
_REFUSALS = {
    "OOM": "OOM command not allowed when used memory > 'maxmemory'.",
    "MISCONF": "MISCONF Redis is configured to save RDB snapshots, but cannot persist on disk.",
    "READONLY": "READONLY You can't write against a read only replica.",
}
_GROWS = frozenset({"SET", "HSET", "ZADD", "RPUSH"})
_WRITES = _GROWS | {"DEL", "PEXPIRE", "PERSIST", "HDEL", "ZREM", "LTRIM"}


class SortedSet(dict[str, float]):
    """Members and their scores."""

    def ranked(self) -> list[str]:
        """The members by score, then by name."""
        return sorted(self, key=lambda member: (self[member], member))


Value = str | dict[str, str] | SortedSet | list[str]


class ScriptError(Exception):
    """What a client would get as an error reply."""

    @property
    def code(self) -> str:
        return str(self).partition(" ")[0]


class FakeRedis:
    """Knows the commands that giliran's scripts use, and no others.

    Attributes:
        us: the server's clock, in microseconds; it stands still during a script.
        refuses: "", "OOM" (what grows), "MISCONF" or "READONLY" (every write).
        before: what the keys were, and their ends, that the last script wrote to.
    """

    def __init__(self) -> None:
        self.us = EPOCH_US
        self.refuses = ""
        self.values: dict[str, Value] = {}
        self.ends: dict[str, int] = {}
        self.before: dict[str, tuple[Value | None, int | None]] = {}
        self._lua: Any = LuaRuntime(unpack_returned_tuples=True)
        self._commands: dict[str, Callable[..., Any]] = {
            name.removeprefix("_do_").upper(): getattr(self, name)
            for name in dir(self)
            if name.startswith("_do_")
        }
        self._scripts: dict[str, Any] = {}
        self._pcall: Any = self._lua.eval(_GLUE)(self._command)

    def run(self, script: str, keys: Sequence[str], args: Sequence[str]) -> Any:
        """Run a script's text; answer as a client with decoded replies would.

        Raises:
            ScriptError: for an error reply.
        """
        compiled = self._scripts.get(script)
        if compiled is None:
            compiled = self._scripts[script] = self._lua.compile(script)
        table = self._lua.table_from
        self.before = {}
        ok, reply = self._pcall(compiled, table(keys), table(args))
        if not ok and lua_type(reply) != "table":
            raise ScriptError(f"ERR {reply}")
        return _reply(reply)

    def peek(self, key: str) -> Value | None:
        """Answer a key's value as of now."""
        end = self.ends.get(key)
        if end is not None and self.us // 1000 > end:
            del self.values[key], self.ends[key]
        return self.values.get(key)

    def flush(self) -> None:
        """Forget everything."""
        self.values.clear()
        self.ends.clear()

    # ------------------------------------------------------------------ commands

    def _command(self, name: str, *args: Any) -> Any:
        refused = _GROWS if self.refuses == "OOM" else _WRITES
        if self.refuses and not self.before and name in refused:
            return self._error(_REFUSALS[self.refuses])  # None once a script has written.
        words = [
            text for arg in args if (text := arg if type(arg) is str else _word(arg)) is not None
        ]
        if len(words) < len(args):
            return self._error("ERR Lua redis lib command arguments must be strings or integers")
        if name in _WRITES:
            for key in words if name == "DEL" else words[:1]:
                self.before.setdefault(key, (self.peek(key), self.ends.get(key)))
        try:
            return self._commands[name](*words)
        except ScriptError as error:
            return self._error(str(error))

    def _error(self, text: str) -> Any:
        return self._lua.table(err=text)

    def _text(self, key: str) -> str | None:
        value = self.peek(key)
        if value is not None and not isinstance(value, str):
            raise ScriptError(_WRONGTYPE)
        return value

    def _hash(self, key: str) -> dict[str, str]:
        value = self.peek(key)
        if value is None:
            return {}
        if not isinstance(value, dict) or isinstance(value, SortedSet):
            raise ScriptError(_WRONGTYPE)
        return value

    def _sorted_set(self, key: str) -> SortedSet:
        value = self.peek(key)
        if value is None:
            return SortedSet()
        if not isinstance(value, SortedSet):
            raise ScriptError(_WRONGTYPE)
        return value

    def _keep(self, key: str, value: Value) -> None:
        """Store what was changed; an empty collection is no key."""
        if value:
            self.values[key] = value
        elif self.peek(key) is not None:
            self._do_del(key)

    def _do_time(self) -> Any:
        return self._lua.table(str(self.us // 1_000_000), str(self.us % 1_000_000))

    def _do_info(self, _: str) -> str:
        return "# Persistence\r\naof_enabled:1\r\n"

    def _do_get(self, key: str) -> str | bool:
        value = self._text(key)
        return False if value is None else value

    def _do_set(self, key: str, value: str, *options: str) -> Any:
        life = _whole(options[options.index("PX") + 1]) if "PX" in options else None
        if life is not None and life <= 0:
            raise ScriptError("ERR invalid expire time in 'set' command")
        if "NX" in options and self.peek(key) is not None:
            return False
        self.values[key] = value
        self.ends.pop(key, None)
        if life is not None:
            self.ends[key] = self.us // 1000 + life
        return self._lua.table(ok="OK")

    def _do_pttl(self, key: str) -> int:
        if self.peek(key) is None:
            return -2
        end = self.ends.get(key)
        return -1 if end is None else end - self.us // 1000

    def _do_pexpire(self, key: str, ms: str) -> int:
        end = self.us // 1000 + _whole(ms)
        if self.peek(key) is None:
            return 0
        self.ends[key] = end
        return 1

    def _do_persist(self, key: str) -> int:
        return 0 if self.peek(key) is None else int(self.ends.pop(key, None) is not None)

    def _do_del(self, *keys: str) -> int:
        there = [key for key in keys if self.peek(key) is not None]
        for key in there:
            del self.values[key]
            self.ends.pop(key, None)
        return len(there)

    def _do_exists(self, *keys: str) -> int:
        return sum(self.peek(key) is not None for key in keys)

    def _do_type(self, key: str) -> Any:
        value = self.peek(key)
        kinds = {str: "string", dict: "hash", SortedSet: "zset", list: "list"}
        return self._lua.table(ok="none" if value is None else kinds[type(value)])

    def _do_hget(self, key: str, name: str) -> str | bool:
        return self._hash(key).get(name, False)

    def _do_hmget(self, key: str, *names: str) -> Any:
        fields = self._hash(key)
        return self._lua.table(*(fields.get(name, False) for name in names))

    def _do_hset(self, key: str, *pairs: str) -> int:
        fields = self._hash(key)
        new = dict(zip(pairs[::2], pairs[1::2], strict=True))
        self.values[key] = {**fields, **new}
        return len(new.keys() - fields.keys())

    def _do_hdel(self, key: str, *names: str) -> int:
        fields = dict(self._hash(key))
        gone = [name for name in names if fields.pop(name, None) is not None]
        self._keep(key, fields)
        return len(gone)

    def _do_hlen(self, key: str) -> int:
        return len(self._hash(key))

    def _do_rpush(self, key: str, *items: str) -> int:
        value = self.peek(key)
        if value is not None and not isinstance(value, list):
            raise ScriptError(_WRONGTYPE)
        self.values[key] = [*(value or []), *items]
        return len(self.values[key])

    def _do_ltrim(self, key: str, first: str, last: str) -> Any:
        value = self.peek(key)
        if isinstance(value, list):
            self.values[key] = (
                value[int(first) :] if last == "-1" else value[int(first) : int(last)]
            )
        return self._lua.table(ok="OK")

    def _do_lindex(self, key: str, place: str) -> str | bool:
        value = self.peek(key)
        return value[int(place)] if isinstance(value, list) and value else False

    def _do_zadd(self, key: str, *words: str) -> int:
        only_new = words[0] == "NX"
        score, member = words[-2:]
        ranks = SortedSet(self._sorted_set(key))
        new = member not in ranks
        if new or not only_new:
            ranks[member] = float(score)
        self.values[key] = ranks
        return int(new)

    def _do_zrem(self, key: str, *members: str) -> int:
        ranks = SortedSet(self._sorted_set(key))
        gone = [member for member in members if ranks.pop(member, None) is not None]
        self._keep(key, ranks)
        return len(gone)

    def _do_zcard(self, key: str) -> int:
        return len(self._sorted_set(key))

    def _do_zscore(self, key: str, member: str) -> str | bool:
        score = self._sorted_set(key).get(member)
        return False if score is None else _score(score)

    def _do_zrank(self, key: str, member: str) -> int | bool:
        ranked = self._sorted_set(key).ranked()
        return ranked.index(member) if member in ranked else False

    def _do_zrange(self, key: str, first: str, last: str, *scores: str) -> Any:
        ranks = self._sorted_set(key)
        ranked = ranks.ranked()
        end = len(ranked) if last == "-1" else int(last) + 1
        start = max(0, len(ranked) + int(first)) if int(first) < 0 else int(first)
        return self._told(ranks, ranked[start:end], scores=bool(scores))

    def _do_zrangebyscore(self, key: str, _: str, most: str, *limit: str) -> Any:
        ranks = self._sorted_set(key)
        due = [member for member in ranks.ranked() if ranks[member] <= float(most)]
        return self._told(ranks, due[: int(limit[2])], scores=False)

    def _told(self, ranks: SortedSet, members: list[str], *, scores: bool) -> Any:
        pairs = ([one, _score(ranks[one])] if scores else [one] for one in members)
        return self._lua.table(*(word for pair in pairs for word in pair))


def _word(arg: Any) -> str | None:
    if isinstance(arg, bool) or not isinstance(arg, int | float):
        return None
    return str(int(arg)) if arg == arg // 1 and abs(arg) < 2**53 else f"{arg:.17g}"


def _score(score: float) -> str:
    return str(int(score)) if score == score // 1 else repr(score)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ScriptError("ERR value is not an integer or out of range") from None


def _reply(reply: Any) -> Any:
    if lua_type(reply) == "table":
        if reply["err"] is not None:
            raise ScriptError(reply["err"])
        if reply["ok"] is not None:
            return reply["ok"]
        return [_reply(item) for item in reply.values()]
    if isinstance(reply, float):
        return int(reply)
    return None if reply is False else reply
