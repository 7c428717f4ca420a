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
_GROWS, _WRITES = frozenset({"SET", "HSET"}), frozenset({"SET", "HSET", "DEL", "PEXPIRE"})


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
    """

    def __init__(self) -> None:
        self.us = EPOCH_US
        self.refuses = ""
        self.values: dict[str, str | dict[str, str]] = {}
        self.ends: dict[str, int] = {}
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
        ok, reply = self._pcall(compiled, table(keys), table(args))
        if not ok and lua_type(reply) != "table":
            raise ScriptError(f"ERR {reply}")
        return _reply(reply)

    def peek(self, key: str) -> str | dict[str, str] | None:
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
        if self.refuses and name in (_GROWS if self.refuses == "OOM" else _WRITES):
            return self._error(_REFUSALS[self.refuses])
        words = [arg if type(arg) is str else _word(arg) for arg in args]
        if None in words:
            return self._error("ERR Lua redis lib command arguments must be strings or integers")
        try:
            return self._commands[name](*words)
        except ScriptError as error:
            return self._error(str(error))

    def _error(self, text: str) -> Any:
        return self._lua.table(err=text)

    def _text(self, key: str) -> str | None:
        value = self.peek(key)
        if isinstance(value, dict):
            raise ScriptError(_WRONGTYPE)
        return value

    def _hash(self, key: str) -> dict[str, str]:
        value = self.peek(key)
        if isinstance(value, str):
            raise ScriptError(_WRONGTYPE)
        return {} if value is None else value

    def _do_time(self) -> Any:
        return self._lua.table(str(self.us // 1_000_000), str(self.us % 1_000_000))

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
        kind = "none" if value is None else "string" if isinstance(value, str) else "hash"
        return self._lua.table(ok=kind)

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


def _word(arg: Any) -> str | None:
    if isinstance(arg, bool) or not isinstance(arg, int | float):
        return None
    return str(int(arg)) if arg == arg // 1 and abs(arg) < 2**53 else f"{arg:.17g}"


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
