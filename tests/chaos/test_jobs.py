"""What bodies write down."""

from __future__ import annotations

from pathlib import Path

from chaos.history import Recorder, read
from chaos.jobs import Bodies, Diary, make_jobs
from chaos.sinks import Ledger
from tests.conftest import MakeServer

from giliran import Giliran


def no_ledger() -> Ledger:
    raise AssertionError("this job writes no row")


def test_a_job_of_two_resources_notes_each_and_one_effect(
    make_server: MakeServer, tmp_path: Path
) -> None:
    diary = Diary(Recorder(tmp_path, "w"))
    turns = Giliran(make_server().url, listeners=[diary])
    make_jobs(turns, Bodies(diary, no_ledger))["pair"]("r39", "e1", 0.0, 0.0)
    turns.close()
    history = read(tmp_path)
    both = {"lock:r0", "lock:r39"}
    for kind in ("grant", "begin", "end"):
        assert {event["res"] for event in history if event["kind"] == kind} == both
    assert [event["effect"] for event in history if event["kind"] == "begin"] == ["e1", ""]
    assert [event["effect"] for event in history if event["kind"] == "effect"] == ["e1"]
