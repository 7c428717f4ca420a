"""A TCP proxy before a server that loses, delays and doubles what a test tells it to."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

from giliran.testing._tunnel import Tunnel, reset

if TYPE_CHECKING:
    from types import TracebackType

Effect = Literal["drop_reply", "drop_request", "duplicate", "delay_reply"]
_JOIN_SECONDS = 5.0


@dataclass(slots=True)
class Rule:
    """What shall happen to the next requests that contain some bytes; `hits` counts them."""

    effect: Effect
    matching: bytes
    left: int
    seconds: float = 0.0
    hits: int = 0


@dataclass(slots=True)
class Weather:
    """What the tunnels ask before they pass anything on. Shared by all of them."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    rules: list[Rule] = field(default_factory=list[Rule])
    requests: int = 0
    delay: float = 0.0
    rate: float = 0.0
    black: bool = False

    def judge(self, request: bytes) -> Rule | None:
        """Count a request, and return the rule that strikes it, used up by one."""
        with self.lock:
            self.requests += 1
            for rule in self.rules:
                if rule.left > 0 and rule.matching in request:
                    rule.left -= 1
                    rule.hits += 1
                    return rule
        return None


class FaultProxy:
    """Listens on 127.0.0.1 and passes all on to a server there, except for the faults.

    Rules look at the raw bytes of each request, pipelined or not: the name of a command, a key,
    a token, or the sha of a script. Beware of short ones: `SET` is in `CLIENT SETINFO` too, which
    clients send on connecting. The first rule that matches strikes. A connection that subscribes
    or monitors is passed on as it comes from then on, without counting replies.
    """

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._weather = Weather()
        self._refuses = False
        self._closing = threading.Event()
        self._tunnels: list[Tunnel] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.02)
        self._numbers = itertools.count(1)
        self._acceptor = threading.Thread(target=self._accept, name="fault-proxy")
        self._acceptor.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The port clients connect to."""
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """The URL for a Redis client."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def requests(self) -> int:
        """How many requests came from clients, whatever became of them."""
        return self._weather.requests

    def drop_reply(self, matching: bytes, times: int = 1) -> Rule:
        """Let the server do it, then cut the connection instead of replying."""
        return self._add(Rule("drop_reply", matching, times))

    def drop_request(self, matching: bytes, times: int = 1) -> Rule:
        """Cut the connection before the server sees it; earlier requests get their replies."""
        return self._add(Rule("drop_request", matching, times))

    def duplicate(self, matching: bytes, times: int = 1) -> Rule:
        """Let the server do it twice; the client gets the first reply only."""
        return self._add(Rule("duplicate", matching, times))

    def delay_reply(self, matching: bytes, seconds: float, times: int = 1) -> Rule:
        """Let the server do it, and hold the reply back for a while."""
        return self._add(Rule("delay_reply", matching, times, seconds))

    def throttle(self, bytes_per_second: float) -> None:
        """Let at most so many bytes a second through, each way and connection; 0 lifts it."""
        self._weather.rate = bytes_per_second

    def delay(self, seconds: float) -> None:
        """Hold every request back for a while, from now on; 0 ends it."""
        self._weather.delay = seconds

    def blackhole(self, *, on: bool) -> None:
        """Swallow all bytes both ways. A connection that lost some stays black for good."""
        self._weather.black = on

    def refuse(self, *, on: bool) -> None:
        """Reset new connections; open ones go on."""
        self._refuses = on

    def reset_all(self) -> None:
        """Reset all open connections, and return when it is done."""
        with self._weather.lock:
            tunnels, self._tunnels = self._tunnels, []
        for tunnel in tunnels:
            tunnel.reset()
        for tunnel in tunnels:
            tunnel.join(_JOIN_SECONDS)

    def close(self) -> None:
        """Stop listening, reset all connections, and end all threads. May be called again."""
        self._closing.set()
        self._acceptor.join(_JOIN_SECONDS)
        if self._acceptor.is_alive():
            raise AssertionError("the proxy's listener does not end")
        self._listener.close()
        self.reset_all()

    def _add(self, rule: Rule) -> Rule:
        with self._weather.lock:
            self._weather.rules.append(rule)
        return rule

    def _accept(self) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(TimeoutError):
                client, _ = self._listener.accept()
                self._open(client)

    def _open(self, client: socket.socket) -> None:
        upstream = None
        if not self._refuses:
            with contextlib.suppress(OSError):
                upstream = socket.create_connection(("127.0.0.1", self._upstream_port), 5)
        if upstream is None:
            reset(client)
            return
        tunnel = Tunnel(client, upstream, self._weather, f"fault-proxy-{next(self._numbers)}")
        with self._weather.lock:
            self._tunnels = [t for t in self._tunnels if t.is_open()]
            self._tunnels.append(tunnel)
        tunnel.start()
