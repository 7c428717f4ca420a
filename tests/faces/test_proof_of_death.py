"""A process is proven dead only by what this machine and pid namespace say of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from tests.support.wait import wait_for

from giliran import worker
from giliran.holder import parse

STAMP = "import sys; from giliran import worker; print(worker.stamp(), flush=True); "


@pytest.fixture
def child() -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    with subprocess.Popen(
        [sys.executable, "-c", STAMP + "sys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        yield process, dict(parse(";" + process.stdout.readline().strip()))
        process.kill()


def test_one_that_lives_or_is_stopped_is_not_dead(
    child: tuple[subprocess.Popen[str], dict[str, str]],
) -> None:
    process, fields = child
    assert not worker.is_dead(fields)
    process.send_signal(signal.SIGSTOP)
    assert not worker.is_dead(fields)
    process.send_signal(signal.SIGCONT)


def test_one_that_was_killed_is_dead_before_and_after_its_parent_notices(
    child: tuple[subprocess.Popen[str], dict[str, str]],
) -> None:
    process, fields = child
    process.kill()
    wait_for(lambda: worker.is_dead(fields), 5)  # A zombie: nobody has waited for it yet.
    process.wait()
    assert worker.is_dead(fields)


def test_another_process_under_its_pid_proves_it_dead(
    child: tuple[subprocess.Popen[str], dict[str, str]],
) -> None:
    _, fields = child
    assert worker.is_dead({**fields, "start": "1"})


@pytest.mark.parametrize("name", ["host", "boot", "ns"])
def test_elsewhere_nothing_is_proven(
    child: tuple[subprocess.Popen[str], dict[str, str]], name: str
) -> None:
    process, fields = child
    process.kill()
    process.wait()
    assert not worker.is_dead({**fields, name: "another"})


@pytest.mark.parametrize("broken", [{}, {"pid": "0"}, {"pid": "x"}, {"start": ""}])
def test_a_stamp_that_says_too_little_proves_nothing(broken: dict[str, str]) -> None:
    fields = {**parse(f";{worker.stamp()}"), **broken} if broken else {}
    assert not worker.is_dead(fields)


def test_one_whose_main_thread_has_ended_still_works(tmp_path: object) -> None:
    """The main thread is a zombie then, the process is not."""
    code = STAMP + (
        "import ctypes, threading\n"
        "threading.Thread(target=sys.stdin.read).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        fields = parse(";" + process.stdout.readline().strip())
        wait_for(lambda: worker._stat(f"/proc/{process.pid}/stat")[0] == "Z", 5)
        assert not worker.is_dead(fields)
        process.kill()
        process.wait()
        assert worker.is_dead(fields)


def test_a_process_that_may_not_be_asked_is_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert not worker.is_dead({**parse(f";{worker.stamp()}"), "start": "1"})


def test_this_process_is_not_dead_whoever_asks() -> None:
    found: list[bool] = []
    thread = threading.Thread(
        target=lambda: found.append(worker.is_dead(parse(f";{worker.stamp()}")))
    )
    thread.start()
    thread.join()
    assert found == [False]
