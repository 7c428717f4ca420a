"""One `Giliran` object, and its two faces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.faces.face import AsyncFace, Face, SyncFace

from giliran import Giliran

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def turns(redis_url: str) -> Iterator[Giliran]:
    turns = Giliran(redis_url)
    yield turns
    turns.close()


@pytest.fixture(params=[SyncFace, AsyncFace], ids=["sync", "async"])
def face(request: pytest.FixtureRequest, turns: Giliran) -> Face:
    made: Face = request.param(turns)
    return made
