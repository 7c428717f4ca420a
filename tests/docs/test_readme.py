"""The README's examples run exactly as they are printed."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.wait import wait_for

from giliran.embedded import EmbeddedServer

README = Path(__file__).parents[2] / "README.md"
EXAMPLE = re.compile(r"<!-- example: (\w+\.py) -->\n```python\n(.*?)```", re.DOTALL)
PORT = 6379  # What the examples say.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Write the examples to files beside a server where they expect it."""
    folder = tmp_path_factory.mktemp("readme")
    for name, text in EXAMPLE.findall(README.read_text("utf-8")):
        (folder / name).write_text(text, "utf-8")
    with EmbeddedServer(port=PORT):
        yield folder


def run(folder: Path, name: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", name],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_plain_example(folder: Path) -> None:
    told = run(folder, "plain.py")
    assert "my turn; write with fence" in told
    assert told.count("sent r-1") == 2
    assert "30 s to go without a renewal" in told


def test_celery_example_with_a_real_worker(folder: Path) -> None:
    log = folder / "worker.log"
    command = [sys.executable, "-m", "celery", "-A", "shop", "worker", "-c", "2", "-l", "INFO"]
    with log.open("w") as out:
        worker = subprocess.Popen(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
    try:
        wait_for(lambda: " ready." in log.read_text(), timeout=30, message=str(log))
        run(folder, "send.py")
    finally:
        worker.terminate()
        worker.wait(20)


def test_the_ledger_function_is_printed_as_it_is() -> None:
    source = (README.parent / "src/giliran/demo/ledger.py").read_text("utf-8")
    printed = re.search(
        r"```python\n(def apply_refund.*?)```", README.read_text("utf-8"), re.DOTALL
    )
    assert printed is not None
    assert printed[1] in source
