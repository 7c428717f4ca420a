"""The demo keeps its promises, its books refuse zombies, and it leaves nothing behind."""

import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path

import pytest
from tests.support.wait import wait_for

from giliran.demo import ledger
from giliran.demo.broker import Sent
from giliran.demo.journal import Body, History, Journal, Note
from giliran.demo.report import Report, duplicates, failures, overlaps

COMMAND = [str(Path(sys.executable).with_name("giliran")), "demo"]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Books with order 7, and a connection to them."""
    ledger.create(tmp_path / "books", [7])
    with closing(ledger.connect(tmp_path / "books")) as opened:
        yield opened


def paid(db: sqlite3.Connection) -> int:
    return ledger.START - ledger.read_balance(db, 7)


# ---------------------------------------------------------------------- the ledger


def test_a_refund_is_applied_once_whoever_repeats_it(db: sqlite3.Connection) -> None:
    assert ledger.apply_refund(db, 7, "r-1", 50, fence=10) is True
    assert ledger.apply_refund(db, 7, "r-1", 50, fence=10) is False
    assert ledger.apply_refund(db, 7, "r-1", 50, fence=11) is False
    assert paid(db) == 50


def test_one_holder_may_write_more_than_once(db: sqlite3.Connection) -> None:
    assert ledger.apply_refund(db, 7, "r-1", 50, fence=10)
    assert ledger.apply_refund(db, 7, "r-2", 20, fence=10)
    assert paid(db) == 70


def test_the_write_of_a_zombie_is_refused_and_leaves_nothing(db: sqlite3.Connection) -> None:
    ledger.apply_refund(db, 7, "r-1", 50, fence=11)
    with pytest.raises(ledger.StaleFence, match="order 7"):
        ledger.apply_refund(db, 7, "r-2", 20, fence=10)
    assert not db.in_transaction
    assert paid(db) == 50
    assert ledger.apply_refund(db, 7, "r-2", 20, fence=12), "it can be applied in a later turn"


def test_a_repeat_raises_the_fence_too(db: sqlite3.Connection) -> None:
    ledger.apply_refund(db, 7, "r-1", 50, fence=10)
    ledger.apply_refund(db, 7, "r-1", 50, fence=12)
    with pytest.raises(ledger.StaleFence):
        ledger.apply_refund(db, 7, "r-2", 20, fence=11)


def test_blind_payments_repeat_and_overwrite(db: sqlite3.Connection, tmp_path: Path) -> None:
    for body in "ab":
        ledger.pay_blindly(db, 7, "r-1", 50, body, balance=ledger.START)
    books = ledger.read(tmp_path / "books")
    assert books.effects == ("r-1", "r-1")
    assert books.bodies == {"a", "b"}
    assert books.paid == 50


# ---------------------------------------------------------------------- overlaps and counts


def body(
    name: str, began: float, ended: float, trusted_until: float = math.inf, order: int = 7
) -> Body:
    return Body(name, 1, order, "r-1", began, trusted_until, ended)


@pytest.mark.parametrize(
    ("bodies", "pairs"),
    [
        pytest.param([body("a", 0, 2), body("b", 2, 3)], 0, id="one after the other"),
        pytest.param([body("a", 0, 2), body("b", 1, 3)], 1, id="at once"),
        pytest.param([body("b", 1, 3), body("a", 0, 2)], 1, id="in any order"),
        pytest.param([body("a", 0, 2), body("b", 1, 3, order=8)], 0, id="on two orders"),
        pytest.param([body("a", 0, 9), body("b", 1, 2), body("c", 3, 4)], 2, id="around two"),
        pytest.param([body("a", 0, 9), body("b", 1, 8), body("c", 2, 7)], 3, id="all three"),
        pytest.param([body("a", 0, 9, 1), body("b", 1, 8)], 0, id="a zombie does not trust"),
        pytest.param([body("a", 0, math.inf), body("b", 1, 8)], 1, id="one that never ended"),
    ],
)
def test_overlaps_are_trusted_intervals_that_intersect(bodies: list[Body], pairs: int) -> None:
    assert overlaps(bodies) == pairs


def test_duplicates_are_repeats_and_redeliveries_that_were_delivered() -> None:
    sent = Sent(firsts=frozenset("ab"), repeats=frozenset("xyz"))
    assert duplicates(sent, {"a": 1, "b": 3, "x": 1, "y": 2, "put back": 5}) == 2 + 1 + 2


def test_the_journal_tells_which_bodies_run_and_how_long_they_trusted(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    with closing(History(tmp_path / "journal")) as history:
        journal.write(Note(kind="begun", at=1, body="a", pid=5, trusted_until=3))
        journal.write(Note(kind="begun", at=1, body="b", pid=6, trusted_until=3))
        assert history.read()
        assert [running.name for running in history.running()] == ["a", "b"]
        journal.write(Note(kind="lost", at=3.5, body="a", trusted_until=3.5))
        journal.write(Note(kind="lost", at=3.5, body="b", trusted_until=3.6))
        journal.write(Note(kind="ended", at=4, body="a", pid=5, trusted_until=3.5))
        journal.write(Note(kind="begun", at=4, body="c", pid=6, trusted_until=9))
        history.read()
        assert not history.read()
        assert [running.name for running in history.running()] == ["c"]
        a, b = history.bodies["a"], history.bodies["b"]
        assert (a.ended, a.trusted_until, a.stalled) == (4, 3.5, True)
        assert b.ended == 4, "its process had no time to note the end, but began another"
        assert not b.stalled, "lost while it was trusted: no stall explains that"


GOOD = Report(
    jobs=60, effects=60, double_effects=0, overlaps=0, lost=0, seconds=9.0, kills=5, freezes=1,
    duplicates=50, imbalance=0, ambiguous_kills=None,
)  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "changes", "told"),
    [
        ("unguarded", {"double_effects": 0}, "unguarded: double_effects > 0"),
        ("guarded", {"double_effects": 1}, "guarded: double_effects == 0"),
        ("guarded", {"overlaps": 1}, "guarded: overlaps == 0"),
        ("guarded", {"lost": 1}, "guarded: lost == 0"),
        ("guarded", {"imbalance": -3}, "guarded: imbalance == 0"),
        ("guarded", {"kills": 4}, "guarded: kills >= 5"),
        ("guarded", {"freezes": 0}, "guarded: freezes >= 1"),
        ("guarded", {"duplicates": 49}, "guarded: duplicates >= 50"),
        ("redis_record", {"double_effects": 3}, "redis_record: double_effects <= ambiguous_kills"),
    ],
)
def test_every_promise_that_is_not_kept_is_told(
    mode: str, changes: dict[str, int], told: str
) -> None:
    reports = {
        "unguarded": replace(GOOD, double_effects=9),
        "guarded": GOOD,
        "redis_record": replace(GOOD, double_effects=2, ambiguous_kills=2),
    }
    assert failures(reports) == []
    assert failures({**reports, mode: replace(reports[mode], **changes)}) == [
        f"{told} does not hold"
    ]


# ---------------------------------------------------------------------- the command


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_the_demo_keeps_its_promises_and_prints_one_line(tmp_path: Path) -> None:
    done = run("--json", "--jobs", "60", "--orders", "12", "--seed", "7", tmp=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    reports = json.loads(done.stdout)
    assert list(reports) == ["unguarded", "guarded", "redis_record"]
    always = {field.name for field in fields(Report)} - {"ambiguous_kills"}
    assert reports["unguarded"].keys() == reports["guarded"].keys() == always
    assert reports["redis_record"].keys() == always | {"ambiguous_kills"}
    assert reports["guarded"]["jobs"] == reports["guarded"]["effects"] == 60
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(90)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_demo_that_is_interrupted_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals
) -> None:
    with start("--json", tmp=tmp_path) as demo:
        wait_for(lambda: working(tmp_path), timeout=40)
        children = descendants(demo.pid)
        demo.send_signal(number)
        assert demo.wait(20) != 0
    wait_for(lambda: not any(map(alive, children)), timeout=5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_workers_end_with_a_demo_that_is_killed(tmp_path: Path) -> None:
    with start("--json", tmp=tmp_path) as demo:
        wait_for(lambda: working(tmp_path), timeout=40)
        children = descendants(demo.pid)
        demo.kill()
    wait_for(lambda: not any(map(alive, children)), timeout=10)


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_its_extra_the_command_says_what_to_install(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import giliran.cli as c; c.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"giliran needs {missing}: pip install 'giliran[cli]'\n"


def test_help_needs_no_queue() -> None:
    code = "import sys; sys.modules['celery'] = None; import giliran.cli as c; c.main()"
    for arguments in (["--help"], ["--version"], ["demo", "--help"]):
        subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True)
    done = subprocess.run(
        [sys.executable, "-c", code, "demo"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install 'giliran[demo]'" in done.stderr


def run(*arguments: str, tmp: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env={**os.environ, "TMPDIR": str(tmp)},
        capture_output=True,
        text=True,
        check=False,
    )


def start(*arguments: str, tmp: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        env={**os.environ, "TMPDIR": str(tmp)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def working(folder: Path) -> bool:
    """Tell whether workers run bodies."""
    return any('"begun"' in journal.read_text() for journal in folder.rglob("journal.jsonl"))


def descendants(pid: int) -> set[int]:
    """Find the processes that this one started, and those that they started."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(") ")[2].split()
        except OSError:  # It has just ended.
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2]
    except OSError:
        return False
    return not state.startswith("Z")
