"""Connections of our own, from a URL or from the settings of a client the user has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

SOCKET_TIMEOUT = 2.0
_SAFE = frozenset(
    {
        "host", "port", "db", "username", "password", "path", "credential_provider", "protocol",
        "client_name", "socket_keepalive", "socket_keepalive_options", "socket_type",
    }
)  # fmt: skip
_CLASSES = {
    "Connection": (redis.Connection, redis.asyncio.Connection),
    "SSLConnection": (redis.SSLConnection, redis.asyncio.SSLConnection),
    "UnixDomainSocketConnection": (
        redis.UnixDomainSocketConnection,
        redis.asyncio.UnixDomainSocketConnection,
    ),
}


@dataclass(frozen=True)
class Address:
    """Where Redis is and how to speak to it; never how often to try again.

    Our connections do not re-send by themselves (redis-py 8 retries ten times, and a hung server
    would hold a call for a minute) and have short deadlines: programs decide what to repeat.
    """

    kind: str
    options: dict[str, Any]

    def sync_pool(self) -> redis.ConnectionPool:
        """Make a pool for threads."""
        return redis.ConnectionPool(
            connection_class=cast("Any", _CLASSES[self.kind][0]),
            retry=Retry(NoBackoff(), 0),
            **self._options(),
        )

    def async_pool(self) -> redis.asyncio.ConnectionPool:
        """Make a pool for one event loop."""
        return redis.asyncio.ConnectionPool(
            connection_class=cast("Any", _CLASSES[self.kind][1]),
            retry=AsyncRetry(NoBackoff(), 0),
            **self._options(),
        )

    def _options(self) -> dict[str, Any]:
        return {
            **self.options,
            "socket_timeout": SOCKET_TIMEOUT,
            "socket_connect_timeout": SOCKET_TIMEOUT,
            "health_check_interval": 0,
            "retry_on_error": [],
            "retry_on_timeout": False,
            "max_connections": 2**20,  # redis-py 8 would refuse the 101st thread.
        }

    def __str__(self) -> str:
        where = self.options.get("path") or (
            f"{self.options.get('host', 'localhost')}:{self.options.get('port', 6379)}"
        )
        return f"{where}/{self.options.get('db', 0) or 0}"

    def __repr__(self) -> str:
        return f"<Address {self}>"  # Never the password.


def address(where: object) -> Address:
    """Read where Redis is.

    Args:
        where: a URL (`redis://`, `rediss://`, `unix://`, or the same with `valkey`), or a client of
            redis-py or valkey-py, sync or async: a source of settings only; its retries,
            timeouts and decoding are not taken over.

    Raises:
        TypeError: for anything else, such as a Cluster or Sentinel client.
        ValueError: for a URL that redis-py does not understand.
    """
    if isinstance(where, str):
        pool: Any = _pool(where)
    else:
        pool = getattr(where, "connection_pool", None)
        if pool is None:
            raise TypeError(  # Names the type only: a repr may hold a password.
                "giliran needs a URL or a redis-py or valkey-py client, not "
                f"{type(where).__name__}; Cluster and Sentinel clients are not supported yet"
            )
    kind = str(pool.connection_class.__name__)
    if kind not in _CLASSES:
        raise TypeError(
            f"giliran cannot take its settings from a {kind}: pass a URL or a client of a single "
            "server (TCP, TLS or unix socket)"
        )
    options = {
        name: value
        for name, value in dict(pool.connection_kwargs).items()
        if (name in _SAFE or name.startswith("ssl_")) and value is not None
    }
    return Address(kind, options)


def _pool(url: str) -> redis.ConnectionPool:
    try:
        return redis.ConnectionPool.from_url(_as_redis(url))
    except ValueError:  # Its text may quote a piece of the password, taken for a port.
        raise ValueError(
            "giliran cannot read this URL: write redis://user:password@host:port/database, or "
            "rediss://, unix:// or valkey:// alike; in a password, '/', '?', '#', '@' and '[' are "
            "written as %XX"
        ) from None


def _as_redis(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return {"valkey": "redis", "valkeys": "rediss"}.get(scheme, scheme) + separator + rest
