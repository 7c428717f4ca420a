"""An SQS of a test run's own: moto's server, with credentials that open nothing else."""

from __future__ import annotations

import http.client
import sys
from contextlib import closing

from tests.support.supervised import Supervised, with_environment

# Dummies, so that no client looks for real ones; for the server, its clients and the workers.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class SqsServer(Supervised):
    """An SQS; starts in about a second."""

    @property
    def url(self) -> str:
        """The URL that Celery connects to, with `is_secure` False in its transport options."""
        return f"sqs://none:none@127.0.0.1:{self.ports[0]}//"

    def answers(self) -> bool:
        """Ask for anything."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.ports[0], timeout=5)) as line:
            try:
                line.request("GET", "/moto-api/")
                return line.getresponse().status == 200
            except OSError:
                return False

    def command(self) -> list[str]:
        """Run it by this Python."""
        port = str(self.ports[0])
        command = sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", port
        return with_environment({**ENVIRONMENT, "HOME": self.home}, *command)
