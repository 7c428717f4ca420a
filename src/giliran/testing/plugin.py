"""The pytest plug-in: loaded by itself where giliran is installed; its names begin with giliran_.

| fixture | gives |
|---|---|
| `giliran_server` | one real embedded server for the whole session |
| `giliran_url` | its URL, flushed for this test |
| `giliran_fake` | a function: `store = giliran_fake(turns)`, for the rest of this test |
| `giliran_off` | a function: `giliran_off(turns)`, for the rest of this test |
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator

import pytest
import redis

from giliran.embedded import EmbeddedServer
from giliran.testing._fake import FakeStore, fake, off
from giliran.turns import Giliran


@pytest.fixture(scope="session")
def giliran_server() -> Generator[EmbeddedServer, None, None]:
    """Run one embedded server for the session; needs `giliran[testing]` or a server on the PATH."""
    with EmbeddedServer() as server:
        yield server


@pytest.fixture
def giliran_url(giliran_server: EmbeddedServer) -> str:
    """Give the URL of the session's server, emptied for this test."""
    with contextlib.closing(redis.Redis.from_url(giliran_server.url)) as client:
        client.flushall()
    return giliran_server.url


@pytest.fixture
def giliran_fake() -> Generator[Callable[[Giliran], FakeStore], None, None]:
    """Give a function that lets a `FakeStore` play Redis for the rest of this test."""
    with contextlib.ExitStack() as stack:
        yield lambda turns: stack.enter_context(fake(turns))


@pytest.fixture
def giliran_off() -> Generator[Callable[[Giliran], None], None, None]:
    """Give a function that switches guards off for the rest of this test."""
    with contextlib.ExitStack() as stack:
        yield lambda turns: stack.enter_context(off(turns))
