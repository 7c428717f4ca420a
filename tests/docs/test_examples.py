"""The commands of the examples do what their README says, as they are printed there."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path

import pytest
from tests.support.wait import wait_for

from giliran.embedded._server import _free_ports

ROOT = Path(__file__).parents[2]
COMMANDS = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def printed(readme: Path) -> list[list[str]]:
    """Read the commands of a README, for the Python that runs this test."""
    found = COMMANDS.search(readme.read_text("utf-8"))
    assert found is not None, f"no commands in {readme}"
    folder = str(Path(sys.executable).parent)
    return [shlex.split(line.replace(".venv/bin", folder)) for line in found[1].splitlines()]


@contextmanager
def running(
    command: list[str], environment: dict[str, str], ready: str, log: Path
) -> Generator[None]:
    """Run a command in a block that begins when it has said that it is ready."""
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=sink, stderr=subprocess.STDOUT
        )
    try:
        wait_for(lambda: ready in log.read_text(), 40, f"{command} is not ready; see {log}")
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait(5)


@pytest.mark.timeout(180)
def test_three_commands_show_jobs_of_one_order_taking_turns(tmp_path: Path) -> None:
    server, worker, send = printed(ROOT / "examples/celery/README.md")
    (port,) = islice(_free_ports(), 1)
    environment = {
        **os.environ,
        "EXAMPLE_REDIS": f"redis://127.0.0.1:{port}",
        "EXAMPLE_BOOKS": str(tmp_path / "books"),
    }
    with ExitStack() as stack:
        stack.enter_context(running(server, environment, "serving", tmp_path / "server.log"))
        stack.enter_context(running(worker, environment, " ready.", tmp_path / "worker.log"))
        done = subprocess.run(
            send, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=90
        )
    assert done.returncode == 0, done.stderr
    told = [
        tuple(line.split(maxsplit=3)[2:]) for line in done.stdout.splitlines() if " s  " in line
    ]
    assert told[0] == ("clerk", "has the order open")
    assert {job for job, what in told if what.startswith("put back")} == {"ship", "refund"}
    bodies = [line for line in told if line[1] in ("begins", "ends")]
    assert [job for job, _ in bodies] in (
        ["ship", "ship", "refund", "refund"],
        ["refund", "refund", "ship", "ship"],
    ), told
    assert told[-1] == ("refund", "answered from the record, did not run")
    assert "shipped, balance 700 of 1000" in done.stdout
    assert "answered alike: True" in done.stdout
