"""A RabbitMQ of a test run's own: Debian's server as the current user, in a folder of its own."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kombu.connection import Connection
from tests.support.supervised import Supervised, with_environment

# Not the one on the PATH: that is a wrapper, which changes the user.
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")

# Erlang starts its port mapper as a daemon, which would outlive the server, unless one answers.
START = """
epmd -port "$ERL_EPMD_PORT" -address 127.0.0.1 &
until epmd -port "$ERL_EPMD_PORT" -names >/dev/null 2>&1; do sleep 0.01; done
exec "$0"
"""


def need_rabbitmq() -> None:
    """Skip the test where there is no RabbitMQ; fail it in CI, which has to have one."""
    if not SERVER.exists():
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say(f"no RabbitMQ: there is no {SERVER}; apt-get install rabbitmq-server")


class RabbitServer(Supervised):
    """A RabbitMQ; starts in about 6 s. Durable messages live through `kill` and `start`."""

    ports_wanted = 3

    @property
    def url(self) -> str:
        """The URL that Celery connects to."""
        return f"amqp://guest:guest@127.0.0.1:{self.ports[0]}//"

    def answers(self) -> bool:
        """Log in."""
        connection: Any = Connection(self.url, connect_timeout=2)  # type: ignore[no-untyped-call]
        with suppress(*connection.recoverable_connection_errors), connection:
            connection.connect()
            return True
        return False

    def command(self) -> list[str]:
        """Keep it out of every folder but its own, and off every address but loopback."""
        home, (port, nodes, mapper) = self.home, self.ports
        (home / "plugins").write_text("[].\n")
        (home / "rabbitmq.conf").write_text("disk_free_limit.absolute = 1MB\n")
        (home / "environment").touch()
        settings: dict[str, object] = {
            "HOME": home,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": mapper,
            "RUNNING_UNDER_SYSTEMD": "true",  # Else a shell stays in front of the server.
            "RABBITMQ_NODENAME": "giliran@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": port,
            "RABBITMQ_DIST_PORT": nodes,
            "RABBITMQ_CONF_ENV_FILE": home / "environment",
            "RABBITMQ_CONFIG_FILE": home / "rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": home / "advanced.config",
            "RABBITMQ_GENERATED_CONFIG_DIR": home / "generated",
            "RABBITMQ_ENABLED_PLUGINS_FILE": home / "plugins",
            "RABBITMQ_MNESIA_BASE": home / "data",
            "RABBITMQ_LOG_BASE": home / "logs",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": home / "pid",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        return with_environment(settings, "/bin/sh", "-c", START, SERVER)
