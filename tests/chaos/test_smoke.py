"""A few seconds of chaos: that the machinery works, not that the library does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from chaos.__main__ import main
from chaos.history import Recorder, parse, read
from tests.support.wait import wait_for

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(120)
def test_a_short_run_keeps_its_promises_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # Of this seed: no poison among its first jobs, which takes half a minute to be set aside.
    main(["--minutes", "0.06", "--seed", "49", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["failures"] == []
    assert told["done"]["kill"] > 0
    assert told["counts"]["jobs"] > 0
    assert told["counts"]["parked, then ran"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_leaves_no_process_behind(
    tmp_path: Path, number: signal.Signals
) -> None:
    run = subprocess.Popen(
        [sys.executable, "-m", "chaos", "--minutes", "1"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: len(_naming(str(tmp_path))) > 1, 20.0)  # the server and its supervisor
    wait_for(lambda: list(tmp_path.glob("giliran-chaos-*/w*.jsonl")), 20.0)
    time.sleep(0.2)
    run.send_signal(number)
    code = run.wait(20)
    assert code == (2 if number != signal.SIGKILL else -signal.SIGKILL)
    wait_for(lambda: not _naming(str(tmp_path)), 10.0)
    if number != signal.SIGKILL:
        assert list(tmp_path.iterdir()) == []


def _naming(folder: str) -> list[int]:
    """Find processes that were given this folder: by their words or by their environment."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if folder.encode() in words and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def test_what_a_kill_left_unfinished_did_not_happen(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "w1")
    recorder.log("begin", fence=1)
    path = next(tmp_path.iterdir())
    path.write_bytes(path.read_bytes() + b'{"t": 12, "p": "w1", "ki')
    assert [event["kind"] for event in read(tmp_path)] == ["begin"]
    assert parse([b""]) == []
