"""Runs scripts on Redis: one request, one answer, no re-send; client errors become ours here."""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import Generator
from typing import Any, Protocol, TypeVar

import redis
import redis.asyncio
from redis import exceptions

from giliran.connect import SOCKET_TIMEOUT, Address
from giliran.errors import StoreMisconfigured, StoreUnavailable
from giliran.steps import Call

T = TypeVar("T")

OLDEST = (6, 2)
SILENCE = 0.5  # Between two tries to listen while Redis is away, in seconds.

# By prefix of the error's text: several arrive as a bare ResponseError (reliability.md R12).
_WAITING_HELPS = frozenset(
    {
        "LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "MOVED", "ASK",
        "OOM", "MISCONF", "NOREPLICAS",
    }
)  # fmt: skip
_ADVICE = {
    "OOM": "Redis is out of memory: raise maxmemory, and keep locks on a noeviction server",
    "MISCONF": "Redis cannot persist and refuses writes: look at its disk and log",
    "READONLY": "this Redis is a replica: point the URL at the primary",
    "NOREPLICAS": "Redis has too few replicas for its min-replicas-to-write",
    "LOADING": "Redis is loading its data; it will answer when that is done",
    "BUSY": "Redis is busy with somebody's endless script: SCRIPT KILL it",
    "NOAUTH": "Redis wants a password: put it into the URL",
    "WRONGPASS": "Redis refuses this user or password",
    "NOTDURABLE": (
        "a parked job is as durable as this Redis: turn on appendonly (and grant +info), or say "
        "durable=False"
    ),
    "TLS": "its certificate is not trusted: see ssl_ca_certs, and the host name in the URL",
    "NOPERM": "this user lacks rights: allow EVALSHA, EVAL and the commands of our scripts",
    "WRONGTYPE": "a key of giliran's holds another type: another program uses its name",
}


class Transport(Protocol):
    """What carries calls to Redis, or plays Redis in a test."""

    def send(self, request: Call[T]) -> T:
        """Run a script and decode its reply; raise `StoreUnavailable` without one."""
        ...

    async def asend(self, request: Call[T]) -> T:
        """Same as `send`, awaited."""
        ...

    def listen(self, key: str, seconds: float, /) -> bool:
        """Wait for a bell to ring; a hint, so that errors count as silence."""
        ...

    async def alisten(self, key: str, seconds: float, /) -> bool:
        """Same as `listen`, awaited."""
        ...


def translate(error: Exception, where: str) -> StoreUnavailable:
    """Turn a client's error into ours, sorted by whose move is next."""
    message = str(error)
    if isinstance(error, exceptions.AuthenticationError):
        wrong = "WRONGPASS" in message or "invalid username-password" in message
        code = "WRONGPASS" if wrong else "NOAUTH"
        return StoreMisconfigured(code, f"{where}: {_ADVICE[code]} ({message})", ambiguous=False)
    if isinstance(error, (exceptions.ConnectionError, exceptions.TimeoutError, OSError)) and not (
        isinstance(error, (exceptions.BusyLoadingError, exceptions.MaxConnectionsError))
    ):
        if "max number of clients" in message:
            return StoreUnavailable("MAXCLIENTS", f"{where}: {message}", ambiguous=False)
        if "CERTIFICATE_VERIFY_FAILED" in message:
            return StoreMisconfigured(
                "TLS", f"{where}: {_ADVICE['TLS']} ({message})", ambiguous=False
            )
        return StoreUnavailable(
            "unreachable", f"Redis at {where} did not answer: {message}", ambiguous=True
        )
    code = _prefix(error, message)
    detail = f"{where}: {_ADVICE.get(code, 'Redis refused a script of giliran')} ({message})"
    if code in _WAITING_HELPS:
        return StoreUnavailable(code, detail, ambiguous=False)
    if "nknown" in message and "command" in message:
        detail = f"{where} is too old or lacks a command; Redis 6.2 or Valkey is needed ({message})"
    return StoreMisconfigured(code, detail, ambiguous=False)


_BY_CLASS: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.MasterDownError, "MASTERDOWN"),  # before its base class
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.ClusterCrossSlotError, "CROSSSLOT"),
)


# What servers say, without a code, when a script's command is denied: Valkey and Redis 7.2; 7.0.
_DENIED = ("ACL failure in script", "The user executing the script can't")


def _prefix(error: Exception, message: str) -> str:
    """Find the server's error code; redis-py cuts it off where it has a class for it."""
    for kind, code in _BY_CLASS:
        if isinstance(error, kind):
            return code
    if message.startswith(_DENIED):
        return "NOPERM"
    first = message.lstrip("-").partition(" ")[0]
    if first.isupper():
        return first.rstrip(":")
    # Redis 6.2 wraps what a script's command answered: "Error running script …: -OOM command …".
    for code in (*_WAITING_HELPS, "NOPERM", "WRONGTYPE"):
        if f"-{code} " in message or f" {code} " in message:
            return code
    return "ERR"


class RedisTransport:
    """Calls on connections of our own: a pool for threads and one for each event loop."""

    def __init__(self, address: Address) -> None:
        self._address = address
        # redis-py is typed only in part: what comes from it is Any until `decode`.
        self._sync: Any = redis.Redis(connection_pool=address.sync_pool())
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = (
            weakref.WeakKeyDictionary()
        )

    def send(self, request: Call[T]) -> T:
        """Run a script and decode its reply."""
        with self._ours():
            try:
                reply: Any = self._sync.execute_command(*short(request))
            except exceptions.NoScriptError:
                self._check_version()
                reply = self._sync.execute_command(*full(request))
        return request.decode(reply)

    async def asend(self, request: Call[T]) -> T:
        """Same as `send`, awaited."""
        client = self._client()
        with self._ours():
            async with asyncio.timeout(request.timeout):
                try:
                    reply: Any = await client.execute_command(*short(request))
                except exceptions.NoScriptError:
                    await asyncio.to_thread(self._check_version)
                    reply = await client.execute_command(*full(request))
        return request.decode(reply)

    def listen(self, key: str, seconds: float, /) -> bool:
        """Wait for a bell to ring; without Redis it just takes its time."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            try:
                if self._sync.blpop([key], timeout=_block(left)):
                    return True
            except (exceptions.RedisError, OSError):
                time.sleep(min(left, SILENCE))
        return False

    async def alisten(self, key: str, seconds: float, /) -> bool:
        """Same as `listen`, awaited."""
        ends = time.monotonic() + seconds
        client = self._client()
        while (left := ends - time.monotonic()) > 0:
            try:
                if await client.blpop([key], timeout=_block(left)):
                    return True
            except (exceptions.RedisError, OSError):
                await asyncio.sleep(min(left, SILENCE))
        return False

    def appends(self) -> bool | None:
        """Tell whether Redis keeps an append-only file; None if it does not say."""
        try:
            info: Any = self._sync.info("persistence")
        except (exceptions.RedisError, OSError):
            return None
        return bool(info.get("aof_enabled"))

    def _check_version(self) -> None:
        """Refuse a server that is too old; called when it does not know our scripts yet."""
        try:
            info: Any = self._sync.info("server")
        except exceptions.ResponseError:
            return  # INFO is an administrator's right; the scripts will tell.
        refuse_old(info, str(self._address))

    def _client(self) -> Any:
        loop = asyncio.get_running_loop()
        client = self._loops.get(loop)
        if client is None:
            client = redis.asyncio.Redis(connection_pool=self._address.async_pool())
            self._loops[loop] = client
        return client

    @contextlib.contextmanager
    def _ours(self) -> Generator[None, None, None]:
        try:
            yield
        except (exceptions.RedisError, OSError) as error:
            raise translate(error, str(self._address)) from error

    def close(self) -> None:
        """Close the threads' connections; those of an event loop close in `aclose`."""
        self._sync.close()
        self._sync.connection_pool.disconnect()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        client = self._loops.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose(close_connection_pool=True)


def _block(left: float) -> float:
    """A server-side wait that ends well before the socket's own deadline; 0 would be for ever."""
    return max(0.01, min(left, SOCKET_TIMEOUT - 0.5))


def refuse_old(info: Any, where: str) -> None:
    """Raise `StoreMisconfigured` for a Redis before 6.2; every Valkey is new enough."""
    version = str(info.get("redis_version", ""))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if "valkey_version" not in info and len(numbers) == 2 and numbers < OLDEST:
        raise StoreMisconfigured(
            "OLD",
            f"{where} is Redis {version}; giliran needs Redis 6.2 or Valkey: upgrade the server",
            ambiguous=False,
        )


def short(request: Call[Any]) -> tuple[str | int, ...]:
    """Write a call as EVALSHA."""
    return ("EVALSHA", request.script.sha, len(request.keys), *request.keys, *request.args)


def full(request: Call[Any]) -> tuple[str | int, ...]:
    """Write a call as EVAL, for a server that does not know the script (any more)."""
    return ("EVAL", request.script.text, len(request.keys), *request.keys, *request.args)
