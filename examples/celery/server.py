"""Run a Valkey where the example expects it, until Ctrl-C; nothing is kept on disk."""

import contextlib
import signal
from urllib.parse import urlsplit

from examples.celery.app import SERVER

from giliran.embedded import EmbeddedServer

with EmbeddedServer(port=urlsplit(SERVER).port), contextlib.suppress(KeyboardInterrupt):
    print(f"serving {SERVER}", flush=True)
    signal.pause()
