"""A Redis before 6.2 is refused by name, and what is not Redis at all does no harm.

A stub plays Redis 5, which no package index offers any more: it knows no script, and its INFO
says `redis_version:5.0.14`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socketserver
import threading
from typing import TYPE_CHECKING

import pytest
from tests.faces.face import closing

from giliran import Giliran, StoreMisconfigured, StoreUnavailable
from giliran.testing._resp import Splitter

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.faults.conftest import Connect

INFO = b"# Server\r\nredis_version:5.0.14\r\nredis_mode:standalone\r\n"


class Redis5(socketserver.BaseRequestHandler):
    """Answers the few commands that a claim sends."""

    def handle(self) -> None:
        requests = Splitter(requests=True)
        while data := self.request.recv(65536):
            for request in requests.feed(data):
                self.request.sendall(answer(request))


def answer(request: bytes) -> bytes:
    command = request.split(b"\r\n")[2].upper()
    if command == b"EVALSHA":
        return b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
    if command == b"INFO":
        return b"$%d\r\n%s\r\n" % (len(INFO), INFO)
    return b"-ERR unknown command `%s`\r\n" % command


class NoRedis(socketserver.BaseRequestHandler):
    """Answers as a web server does."""

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            self.request.recv(65536)
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@contextlib.contextmanager
def serving(handler: type[socketserver.BaseRequestHandler]) -> Generator[str]:
    socketserver.ThreadingTCPServer.daemon_threads = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"redis://127.0.0.1:{server.server_address[1]}?protocol=2"
        server.shutdown()
        thread.join()


async def aclaim(turns: Giliran) -> None:
    async with turns.hold("lock:1", ttl=1):
        pytest.fail("must not run")


def test_redis_5_is_too_old(connect: Connect) -> None:
    with serving(Redis5) as url:
        turns = connect(url)
        with pytest.raises(
            StoreMisconfigured, match=r"Redis 5\.0\.14; .* upgrade the server"
        ) as told:
            turns.hold("lock:1").__enter__()
        assert told.value.code == "OLD"
        with pytest.raises(StoreMisconfigured, match=r"needs Redis 6\.2 or Valkey"):
            asyncio.run(closing(turns, aclaim(turns)))
        turns.close()


@pytest.mark.usefixtures("impatient")
def test_what_is_not_redis_is_unavailable(connect: Connect) -> None:
    with serving(NoRedis) as url:
        turns = connect(url)
        with pytest.raises(StoreUnavailable):
            turns.hold("lock:1", ttl=1).__enter__()
        with pytest.raises(StoreUnavailable):
            asyncio.run(closing(turns, aclaim(turns)))
        turns.close()
