"""A `Giliran` object on any server, closed after the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest

from giliran import Giliran
from giliran.testing._proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from giliran.embedded import EmbeddedServer


class Connect(Protocol):
    """Makes a `Giliran`, which is closed after the test."""

    def __call__(self, where: object, **options: Any) -> Giliran: ...


@pytest.fixture
def connect() -> Iterator[Connect]:
    made: list[Giliran] = []

    def make(where: object, **options: Any) -> Giliran:
        made.append(Giliran(where, **options))
        return made[-1]

    yield make
    for turns in made:
        turns.close()


@pytest.fixture
def proxy(server: EmbeddedServer) -> Iterator[FaultProxy]:
    """Faults on the way to the shared server."""
    with FaultProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let claims give up soon, where an outage lasts."""
    monkeypatch.setattr("giliran.term.PATIENCE", 0.3)
