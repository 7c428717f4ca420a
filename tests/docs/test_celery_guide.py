"""The guide to Celery is true: its code runs on a real worker, and it names every check."""

import ast
import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.docs.test_readme import EXAMPLE, run
from tests.support.wait import wait_for

from giliran.embedded import EmbeddedServer

pytestmark = pytest.mark.timeout(180)
ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guides/celery.md").read_text("utf-8")
MIGRATION = re.compile(r"<!-- diff: (\w+)\.py -->\n```diff\n(.*?)```", re.DOTALL)
TABLES = re.compile(r"```sql\n(.*?)```", re.DOTALL)

# Sends what the recipes are about, and prints what became of it.
DRIVE = """
import json
import feeds, mails, nightly, once, prices, refunds, reports, shop, singleton
from celery import signature
from giliran import Contended

told = {}

def outcome(task, *args):
    return task.delay(*args).get(timeout=60)

told["first"] = outcome(shop.recalculate, 42)
told["refunds"] = [outcome(refunds.refund, 42, "r-1", 500) for _ in range(2)]
told["prices"] = [outcome(prices.push_price, "sku", version, 99) for version in (2, 2, 1)]
told["reports"] = [reports.order_reports(["b", "a"], "1-May").get(timeout=60) for _ in range(2)]
with shop.turns.hold("lock:nightly"), shop.turns.hold("lock:mailbox:7"):
    late = mails.send_mail.delay(7, "hello")
    (scheduled,) = shop.app.conf.beat_schedule.values()
    told["skipped"] = signature(scheduled["task"], app=shop.app).delay().get(timeout=60)
    while late.state != "RETRY":
        pass
told["mails"] = late.get(timeout=60)
told["nightly"] = outcome(nightly.clean_up)
told["once"] = outcome(once.rebuild_index, 7)
told["singleton"] = [outcome(singleton.make_invoice, 7, "May") for _ in range(2)]
told["feeds"] = outcome(feeds.import_feed, 7)
with shop.turns.hold("lock:feed:7"):
    told["feeds, busy"] = outcome(feeds.import_feed, 7)
shop.turns.close()
print(json.dumps(told))
"""


def after(diff: str) -> str:
    """Take the new side of a diff."""
    return "".join(line[1:] + "\n" for line in diff.splitlines() if not line.startswith("-"))


class Api:
    """Somebody else's server: keeps what was put, with its idempotency key."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str | None, Any]] = []
        seen = self.seen

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                seen.append((self.path, self.headers["Idempotency-Key"], json.loads(body)))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name there
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port

    @contextmanager
    def serving(self) -> Generator[None]:
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


@pytest.fixture(scope="module")
def api() -> Api:
    return Api()


@pytest.fixture(scope="module")
def folder(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """Write the guide's files as a project, beside the servers and the tables that they expect."""
    folder = tmp_path_factory.mktemp("guide")
    with EmbeddedServer() as server, api.serving():
        files: dict[str, str] = dict(EXAMPLE.findall(GUIDE))
        files |= {f"{name}.py": after(text) for name, text in MIGRATION.findall(GUIDE)}
        for name, text in {**files, "drive.py": DRIVE}.items():
            here = text.replace("localhost:6379", f"127.0.0.1:{server.port}")
            (folder / name).write_text(here.replace("localhost:8080", f"127.0.0.1:{api.port}"))
        with closing(sqlite3.connect(folder / "shop.db")) as db, db:
            db.executescript("".join(TABLES.findall(GUIDE)))
            db.execute("INSERT INTO orders VALUES (42, 10000, 0)")
            db.execute("INSERT INTO prices VALUES ('sku', 2, 0, 0)")
        yield folder


@pytest.fixture(scope="module")
def told(folder: Path) -> Any:
    """Run the recipes on a real worker, once for all tests."""
    log = folder / "worker.log"
    command = [sys.executable, "-m", "celery", "-A", "shop", "worker", "--concurrency", "2"]
    command += ["--include", "once,singleton,feeds", "--without-mingle", "--loglevel", "INFO"]
    with log.open("wb") as out:
        worker = subprocess.Popen(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
    try:
        wait_for(lambda: " ready." in log.read_text(), 40, f"the worker is not ready; see {log}")
        yield json.loads(run(folder, "drive.py"))
    finally:
        worker.terminate()
        worker.wait(20)


def test_every_block_of_python_is_run() -> None:
    assert GUIDE.count("```python") == len(EXAMPLE.findall(GUIDE)) > 5
    assert GUIDE.count("```diff") == len(MIGRATION.findall(GUIDE)) == 3


def test_the_first_guard_runs(told: Any) -> None:
    assert told["first"] == "order 42 is up to date"


def test_the_settings_of_the_first_guard_pass_the_start_up_checks(told: Any, folder: Path) -> None:
    assert "check." not in (folder / "worker.log").read_text()


def test_a_refund_is_paid_once(told: Any, folder: Path) -> None:
    assert told["refunds"] == [{"order": 42, "refunded": 500}] * 2
    with closing(sqlite3.connect(folder / "shop.db")) as db:
        assert db.execute("SELECT balance FROM orders WHERE id = 42").fetchone() == (9500,)


def test_a_price_is_pushed_with_a_key_that_stays_and_never_backwards(told: Any, api: Api) -> None:
    assert told["prices"] == ["version 2 pushed", *["a newer price is there already"] * 2]
    assert api.seen == [("/prices/sku", "price:sku:2", {"cents": 99, "version": 2})]


def test_reports_are_built_and_mailed_once(told: Any, folder: Path) -> None:
    assert told["reports"] == [["a-1-May.pdf", "b-1-May.pdf"]] * 2
    lines = (folder / "worker.log").read_text().splitlines()
    ran = [line for line in lines if "job.ran" in line and "reports." in line]
    assert len(ran) == 3, ran


def test_a_nightly_job_is_skipped_while_another_runs(told: Any) -> None:
    assert told["skipped"] == "skipped: the last one still runs"
    assert told["nightly"] == "cleaned up"


def test_contention_may_spend_retries_if_it_shall(told: Any) -> None:
    assert told["mails"] == "to 7: hello"


def test_what_others_migrate_to_runs(told: Any) -> None:
    assert told["once"] == "index of 7"
    assert told["singleton"] == ["invoice 7 May"] * 2
    assert (told["feeds"], told["feeds, busy"]) == ("feed 7 imported", "already running")


def test_the_tests_of_the_guide_pass(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_refunds.py"],
        check=False,
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "3 passed" in done.stdout, done.stdout


def check_codes() -> set[str]:
    """Read the code of every finding that a rule of the source can make."""
    found: set[str] = set()
    for call in ast.walk(ast.parse((ROOT / "src/giliran/checks.py").read_text("utf-8"))):
        if not (isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "found"):
            continue
        code = call.args[1]
        if isinstance(code, ast.Constant):
            found.add(str(code.value))
        elif isinstance(code, ast.JoinedStr):
            text = "".join(str(getattr(part, "value", "")) for part in code.values[:1])
            found |= {f"{text}visibility", f"{text}ack-timeout"}
    return found


def test_every_start_up_check_is_in_the_guide_and_no_other() -> None:
    section = GUIDE.partition("\n## Start-up checks")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", section))
    assert named == check_codes()
