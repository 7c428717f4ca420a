"""The server as a context manager: start, stop, and the faults a test wants to see."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import random
import shutil
import signal
import socket
from typing import TYPE_CHECKING, Self

from giliran.embedded._find import ServerBinary, ServerNotFound, find_server, inspect_server
from giliran.embedded._home import make_home
from giliran.embedded._process import SupervisedServer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

_ATTEMPTS = 10
_OURS = ("--port", "--dir", "--unixsocket", "--daemonize")


class ServerStartFailed(Exception):
    """The server did not come up; `log` is what it said."""

    def __init__(self, binary: str, log: str) -> None:
        self.log = log
        super().__init__(f"{binary!r} did not start; it said: {log.strip()[-2000:] or 'nothing'}")


class EmbeddedServer:
    """A server of one's own on 127.0.0.1 that ends with this process, even by SIGKILL.

    Keeps nothing on disk unless `args` say so, and then only until `stop`. A forked child may
    use the server, but never ends it.

    Args:
        binary: The server to run; what `find_server` finds if None.
        args: More options for the server, such as `("--appendonly", "yes")`.
        port: The port to listen on; a free one if None.
        unixsocket: Listen on a socket file in a private folder, and on no port.

    Raises:
        ServerNotFound: On start: the binary is no server, or there is none.
        ServerStartFailed: On start: it ended or stayed silent; the error carries its log.
    """

    def __init__(
        self,
        binary: ServerBinary | str | os.PathLike[str] | None = None,
        args: Sequence[str] = (),
        *,
        port: int | None = None,
        unixsocket: bool = False,
    ) -> None:
        refused = [arg for arg in args if arg in _OURS]
        if refused or isinstance(args, str):
            raise ValueError(
                f"args must be a list of options without {', '.join(_OURS)}, got {args!r};"
                " the folder is private, and for the rest there are port= and unixsocket="
            )
        if unixsocket and port is not None:
            raise ValueError(f"port={port} and unixsocket=True exclude each other: drop one")
        self._wanted = binary
        self._args = tuple(args)
        self._fixed_port = 0 if unixsocket else port
        self._binary: ServerBinary | None = None
        self._home: Path | None = None
        self._port = 0
        self._process: SupervisedServer | None = None
        self._owner = 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start, and return when the server answers."""
        if self._process is not None:
            raise RuntimeError(f"the server runs already, as process {self._process.pid}")
        if self._home is None:
            self._binary = _choose(self._wanted)
            self._home = make_home()
            self._owner = os.getpid()
        if self._port:  # a restart: clients know the port
            ports: Iterable[int] = itertools.repeat(self._port, _ATTEMPTS)
        elif self._fixed_port is not None:
            ports = itertools.repeat(self._fixed_port, _ATTEMPTS)
        else:
            ports = itertools.islice(_free_ports(), _ATTEMPTS)
        try:
            self._process = self._launch(ports, self._home)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the server, politely at first, and remove its folder. May be called again."""
        if self._owner != os.getpid():
            return
        process, self._process = self._process, None
        if process is not None:
            process.end()
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
        self._home, self._port = None, 0

    def kill(self) -> None:
        """Kill the server with SIGKILL, and return when it is gone. Its folder stays."""
        self._running.kill()
        self._process = None

    def restart(self) -> None:
        """Start again on the same port and folder; ends the server first if it runs."""
        if self._home is None:
            raise RuntimeError("the server was never started, or it was stopped for good")
        if self._process is not None:
            self._process.end()
            self._process = None
        self.start()

    def pause(self) -> None:
        """Freeze the server with SIGSTOP: it accepts connections and answers nothing."""
        self._running.order(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        self._running.order(signal.SIGCONT)

    @property
    def url(self) -> str:
        """The URL a Redis client connects to."""
        if self._home is None:
            raise RuntimeError("the server has no address before it is started")
        return f"redis://127.0.0.1:{self._port}/0" if self._port else f"unix://{self._home}/s"

    @property
    def port(self) -> int:
        """The TCP port; 0 with a unix socket, or before the start."""
        return self._port

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._running.pid

    @property
    def _running(self) -> SupervisedServer:
        if self._process is None:
            raise RuntimeError("the server does not run")
        if self._owner != os.getpid():
            raise RuntimeError(f"the server belongs to process {self._owner}: command it there")
        return self._process

    def _launch(self, ports: Iterable[int], home: Path) -> SupervisedServer:
        log, said = home / "log", "no free port"
        for port in ports:
            with log.open("ab") as sink:
                # The server inherits the lock with its log, so a sweeper sees that it lives
                # even where it cannot see the process: in another container with this /tmp.
                fcntl.flock(sink, fcntl.LOCK_SH)
                begin = sink.seek(0, os.SEEK_END)
                process = SupervisedServer(self._command(port, home), home, sink)
            try:
                if process.answers(home / "s"):
                    self._port = port
                    return process
            finally:
                if not process.ready:
                    process.kill()
            said = log.read_bytes()[begin:].decode(errors="replace")
            if "Address already in use" not in said:
                break
        raise ServerStartFailed(self._command(0, home)[0], said)

    def _command(self, port: int, home: Path) -> list[str]:
        if self._binary is None:
            raise AssertionError("a server is chosen before it is started")
        command = [self._binary.path, "--port", str(port), "--bind", "127.0.0.1"]
        command += ["--unixsocket", str(home / "s"), "--unixsocketperm", "700"]
        command += ["--dir", str(home), "--save", "", "--appendonly", "no"]
        if self._binary.version >= (7, 0):
            command += ["--enable-debug-command", "local"]
        return [*command, *self._args]


def _choose(wanted: ServerBinary | str | os.PathLike[str] | None) -> ServerBinary:
    if wanted is None or isinstance(wanted, ServerBinary):
        return wanted or find_server()
    found = inspect_server("given", os.fspath(wanted))
    if isinstance(found, str):
        raise ServerNotFound([found])
    return found


def _free_ports() -> Iterator[int]:
    # Below the range the kernel takes for outgoing connections: there, a client that keeps
    # trying a dead server can be given the very port it calls, and connect to itself.
    # The system's randomness, because test runners seed the other one alike in all workers.
    draw = random.SystemRandom()
    for _ in range(200):
        port = draw.randrange(10_240, 32_768)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            yield port
