"""Start a real Valkey or Redis server beside a program: for demos, tests and laptops.

Linux and macOS only. The rest of the library does not import this package.
"""

from giliran.embedded._find import ServerBinary, ServerNotFound, find_server
from giliran.embedded._server import EmbeddedServer, ServerStartFailed

__all__ = ["EmbeddedServer", "ServerBinary", "ServerNotFound", "ServerStartFailed", "find_server"]
