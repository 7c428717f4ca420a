"""TLS: its settings are taken over, and a mix-up is a clear error.

The server in the wheel has no TLS; Debian's redis-server has.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from tests.faces.face import closing
from tests.faults.conftest import Connect

from giliran import StoreMisconfigured, StoreUnavailable
from giliran.embedded import EmbeddedServer, ServerStartFailed

BINARY = shutil.which("redis-server") or shutil.which("valkey-server")
HAVE = bool(BINARY and shutil.which("openssl"))
pytestmark = pytest.mark.skipif(
    not HAVE and "CI" not in os.environ, reason="no TLS server: apt-get install redis-server"
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost, signed by itself; the key is beside it."""
    path = tmp_path_factory.mktemp("tls") / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(path.with_name("key.pem")), "-out", str(path)),
        ],
        check=True,
        capture_output=True,
    )
    return path


@pytest.fixture(scope="module")
def tls_port(certificate: Path) -> Iterator[int]:
    """A server that speaks TLS on a port of its own."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    key = str(certificate.with_name("key.pem"))
    options = ["--tls-port", str(port), "--tls-cert-file", str(certificate)]
    options += ["--tls-key-file", key, "--tls-auth-clients", "no"]
    try:
        with EmbeddedServer(BINARY, options):
            yield port
    except ServerStartFailed:
        if "CI" in os.environ:
            raise
        pytest.skip(f"{BINARY} was built without TLS")


def test_tls_by_url_and_by_client(connect: Connect, tls_port: int, certificate: Path) -> None:
    url = f"rediss://localhost:{tls_port}/0?ssl_ca_certs={certificate}"
    with redis.Redis(
        host="localhost", port=tls_port, ssl=True, ssl_ca_certs=str(certificate)
    ) as client:
        for where in (url, url.replace("rediss", "valkeys"), client):
            with connect(where).hold("lock:1", ttl=1) as lease:
                assert client.exists("lock:1")
                lease.check()


def test_an_unknown_authority_is_a_wrong_configuration(connect: Connect, tls_port: int) -> None:
    turns = connect(f"rediss://localhost:{tls_port}/0")
    with pytest.raises(StoreMisconfigured, match="see ssl_ca_certs") as told, turns.hold("lock:1"):
        pytest.fail("must not run")
    assert told.value.code == "TLS"
    with pytest.raises(StoreMisconfigured):
        asyncio.run(closing(turns, turns.hold("lock:1").__aenter__()))


@pytest.mark.usefixtures("impatient")
def test_plain_words_to_a_tls_server_are_not_answered(connect: Connect, tls_port: int) -> None:
    turns = connect(f"redis://localhost:{tls_port}/0")
    with pytest.raises(StoreUnavailable) as told, turns.hold("lock:1", ttl=1):
        pytest.fail("must not run")
    assert told.value.code == "unreachable"
