"""`giliran demo`."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from giliran.demo.report import Report
    from giliran.demo.run import Tell

ROWS = {
    "jobs": "refunds asked for",
    "effects": "refunds paid",
    "double_effects": "paid again",
    "overlaps": "overlaps on an order",
    "lost": "never paid",
    "imbalance": "balances off by",
    "kills": "workers killed at it",
    "freezes": "workers frozen at it",
    "duplicates": "duplicates delivered",
    "ambiguous_kills": "hit between effect and record",
    "seconds": "seconds",
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@click.option("--jobs", type=click.IntRange(40, 10_000), default=300, show_default=True)
@click.option("--orders", type=click.IntRange(1, 1_000), default=30, show_default=True)
@click.option("--seed", default=1, show_default=True, help="Draws the jobs and their duplicates.")
@click.option(
    "--keep-logs",
    type=click.Path(file_okay=False, path_type=Path),
    help="Copy logs, journals and books of the runs to this folder.",
)
def demo(*, as_json: bool, jobs: int, orders: int, seed: int, keep_logs: Path | None) -> None:
    """Refund orders on Celery workers that get killed and frozen: three ways, side by side.

    Exits with 1 if a promise was not kept.
    """
    try:
        from giliran.demo.report import failures  # noqa: PLC0415  wants Celery, as no other does
    except ModuleNotFoundError as missing:
        raise click.UsageError(f"{missing}: pip install 'giliran[demo]'") from missing
    for number in (signal.SIGTERM, signal.SIGHUP):  # So that these clean up as Ctrl-C does.
        signal.signal(number, _leave)
    with tempfile.TemporaryDirectory(prefix="giliran-demo-") as folder:
        reports = _run_all(Path(folder), jobs, orders, seed, keep_logs)
        if as_json:
            print(json.dumps({mode: as_dict(report) for mode, report in reports.items()}))
        else:
            _show(reports)
        broken = failures(reports)
        if broken:
            _complain(broken, Path(folder))


def as_dict(report: Report) -> dict[str, float]:
    """Make of a report what `--json` prints."""
    return {name: value for name, value in asdict(report).items() if value is not None}


def conclusion(mode: str, report: Report) -> str:
    """Say in a line what a run shows."""
    if mode == "unguarded":
        return (
            f"{report.double_effects} refunds paid again, and {report.overlaps} times two jobs "
            "were at one order at once."
        )
    if mode == "guarded":
        return (
            f"{report.effects} refunds paid for {report.jobs} asked for, and {report.overlaps} "
            f"overlaps, with {report.kills} workers killed and {report.freezes} frozen at it."
        )
    return (
        f"{report.double_effects} paid again, of {report.ambiguous_kills} hit between effect and "
        "record; a record in the effect's own transaction leaves no such gap."
    )


def _run_all(
    folder: Path, jobs: int, orders: int, seed: int, keep_logs: Path | None
) -> dict[str, Report]:
    from giliran.demo.crew import WorkerDied  # noqa: PLC0415
    from giliran.demo.run import run_all  # noqa: PLC0415
    from giliran.embedded import ServerNotFound, ServerStartFailed  # noqa: PLC0415

    try:
        with _progress(jobs) as tell:
            return run_all(folder, jobs, orders, seed, tell)
    except (WorkerDied, ServerNotFound, ServerStartFailed) as error:
        raise click.ClickException(str(error)) from error
    finally:
        if keep_logs is not None:
            shutil.copytree(folder, keep_logs, dirs_exist_ok=True)


@contextmanager
def _progress(jobs: int) -> Generator[Tell, None, None]:
    """Show a bar for each run on stderr, if that is a terminal."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description:>12}"), BarColumn(), TextColumn("{task.fields[told]}")
    rows: dict[str, TaskID] = {}
    with Progress(
        *columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal
    ) as bar:

        def tell(mode: str, paid: int, hits: int) -> None:
            if mode not in rows:
                rows[mode] = bar.add_task(mode, total=jobs, told="")
            told = f"{paid}/{jobs} paid, {hits} workers hit" if paid else "starting workers"
            bar.update(rows[mode], completed=paid, told=told)

        yield tell


def _show(reports: Mapping[str, Report]) -> None:
    table = Table("", *reports)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, words in ROWS.items():
        values = [getattr(report, name) for report in reports.values()]
        table.add_row(words, *("" if value is None else f"{value:,}" for value in values))
    console = Console()
    console.print(table)
    for mode, report in reports.items():
        console.print(f"[bold]{mode}[/]: {conclusion(mode, report)}", highlight=False)


def _complain(broken: list[str], folder: Path) -> NoReturn:
    from giliran.demo.crew import tail  # noqa: PLC0415

    for promise in broken:
        print(promise, file=sys.stderr)
    for mode in sorted({promise.partition(":")[0] for promise in broken}):
        print(tail(folder / mode), file=sys.stderr)
    sys.exit(1)


def _leave(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)
