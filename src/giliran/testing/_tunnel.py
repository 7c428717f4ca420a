"""One connection through the proxy: two threads, one per direction."""

from __future__ import annotations

import collections
import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING

from giliran.testing._resp import Splitter, is_push

if TYPE_CHECKING:
    from collections.abc import Callable

    from giliran.testing._proxy import Rule, Weather

# After these the replies are no longer one for each request.
_STREAMING = (b"SUBSCRIBE\r\n", b"MONITOR\r\n", b"\r\nSYNC\r\n", b"PSYNC\r\n", b"\r\nREPLY\r\n")
_TICK_SECONDS = 0.02
_SLICE_SECONDS = 0.05  # What a throttled line sends at once, in seconds of its rate.


def reset(sock: socket.socket) -> None:
    """Close a socket so that the other side sees "connection reset by peer"."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Tunnel:
    """Passes bytes both ways as far as the weather allows."""

    def __init__(
        self, client: socket.socket, upstream: socket.socket, weather: Weather, name: str
    ) -> None:
        self._client, self._upstream, self._weather = client, upstream, weather
        # What to do with the replies to come: None to pass, a rule, or the cut that waits
        # until the replies before it are delivered.
        self._expected: collections.deque[Rule | None] = collections.deque()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._resets = False
        self._streams = False
        self._lost_bytes = False
        self._pumps = [
            threading.Thread(target=self._run, args=(self._pump_up,), name=f"{name}-up"),
            threading.Thread(target=self._run, args=(self._pump_down,), name=f"{name}-down"),
        ]
        self._running = len(self._pumps)
        for sock in (client, upstream):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(_TICK_SECONDS)

    def start(self) -> None:
        for pump in self._pumps:
            pump.start()

    def is_open(self) -> bool:
        return any(pump.is_alive() for pump in self._pumps)

    def reset(self) -> None:
        """Reset both sides; done when `join` returns."""
        self._resets = True
        self._over.set()

    def join(self, seconds: float) -> None:
        for pump in self._pumps:
            pump.join(seconds)
            if pump.is_alive():
                raise AssertionError(f"{pump.name} does not end")

    def _run(self, pump: Callable[[], None]) -> None:
        try:
            with contextlib.suppress(OSError):
                pump()
        finally:
            self._over.set()
            with self._lock:
                self._running -= 1
                last = not self._running
            # Only the last one closes: nobody else can be inside a call on these sockets.
            if last:
                for sock in (self._client, self._upstream):
                    reset(sock) if self._resets else sock.close()

    def _pump_up(self) -> None:
        requests = Splitter(requests=True)
        while data := self._receive(self._client):
            for request in requests.feed(data):
                if not self._pass_request(request):
                    self._over.wait()  # the replies before the cut may still be on their way
                    return
        # The client said goodbye: the server shall still read all it was sent, and hear of it
        # unless the line is dead.
        if not self._is_black():
            with contextlib.suppress(OSError):
                self._upstream.shutdown(socket.SHUT_WR)
        self._over.wait()

    def _pass_request(self, request: bytes) -> bool:
        """Forward a request as its rule says; False if the connection ends with it."""
        rule = self._weather.judge(request)
        if self._weather.delay:
            self._over.wait(self._weather.delay)
        if rule is not None and rule.effect == "drop_request":
            with self._lock:
                if self._expected:
                    self._expected.append(rule)
                else:
                    self._cut()
            return False
        twice = rule is not None and rule.effect == "duplicate"
        with self._lock:
            self._streams = self._streams or any(s in request.upper() for s in _STREAMING)
            self._expected.extend((None, rule) if twice else (rule,))
        self._send(self._upstream, request * 2 if twice else request)
        return True

    def _pump_down(self) -> None:
        replies = Splitter()
        while data := self._receive(self._upstream):
            if self._streams:
                if any(rule and rule.effect == "drop_reply" for rule in self._expected):
                    return self._cut()
                self._expected.clear()
                self._send(self._client, replies.rest() + data)
                continue
            for reply in replies.feed(data):
                if not self._pass_reply(reply):
                    return self._cut()
        if self._is_black():  # nor does the client hear that the server is gone
            self._over.wait()
        return None

    def _pass_reply(self, reply: bytes) -> bool:
        """Forward a reply as the rule of its request says; False if the connection ends."""
        if is_push(reply):
            self._send(self._client, reply)
            return True
        with self._lock:
            rule = self._expected[0] if self._expected else None
        if rule is not None and rule.effect == "drop_reply":
            return False
        if rule is not None and rule.effect == "delay_reply":
            self._over.wait(rule.seconds)
        if rule is None or rule.effect != "duplicate":
            self._send(self._client, reply)
        # Forgotten only when sent: until then a cut has to wait for it.
        with self._lock:
            if self._expected:
                self._expected.popleft()
            following = self._expected[0] if self._expected else None
        return following is None or following.effect != "drop_request"

    def _cut(self) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)

    def _receive(self, sock: socket.socket) -> bytes:
        """Wait for bytes; nothing at the end of the connection."""
        while not self._over.is_set():
            try:
                data = sock.recv(65536)
            except TimeoutError:
                continue
            if not data or not self._is_black():
                return data
        return b""

    def _is_black(self) -> bool:
        self._lost_bytes = self._lost_bytes or self._weather.black
        return self._lost_bytes

    def _send(self, sock: socket.socket, data: bytes) -> None:
        while data and not self._over.is_set():
            # A delay may have passed meanwhile, and the sky turned black.
            if self._is_black():
                return
            rate = self._weather.rate
            with contextlib.suppress(TimeoutError):
                sent = sock.send(data[: max(1, int(rate * _SLICE_SECONDS))] if rate else data)
                data = data[sent:]
                if rate:
                    self._over.wait(sent / rate)
