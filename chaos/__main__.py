"""Run it: `python -m chaos [--minutes M] [--profile no-loss|loss] [--queue redis|celery]`.

Exit code 0: as promised. 1: something was lost, doubled, overlapped or stuck, or the faults did not
bite. 2: too few faults or jobs in twice the time, or interrupted: no verdict.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from chaos import history
from chaos.checker import judge
from chaos.plan import Plan
from chaos.report import FELL_SHORT, Report
from chaos.soak import Soak, say

_ENDS = (signal.SIGINT, signal.SIGTERM)


def run(plan: Plan, keep: Path | None = None) -> Report:
    """Run a plan and judge it. Leaves no process and no folder, whatever happens."""
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="giliran-chaos-"))
        folder = Path(home)
        if plan.queue == "celery":
            from chaos.celery_soak import CelerySoak  # noqa: PLC0415  needs Celery

            soak: Soak | CelerySoak = CelerySoak(plan, folder, stack)
        else:
            soak = Soak(plan, folder, stack)
        soak.run()
        events = history.read(folder)
        if keep is not None:
            history.write(keep, events)
    return Report(plan, time.monotonic() - begun, soak.done, judge(events))


def arguments(words: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--profile", choices=("no-loss", "loss"), default="no-loss")
    parser.add_argument("--queue", choices=("redis", "celery"), default="redis")
    parser.add_argument("--seed", type=int, default=None, help="of faults and jobs")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--history", type=Path, help="keep the history in this file")
    parser.add_argument("--judge", type=Path, help="judge such a file again, and run nothing")
    given = parser.parse_args(words)
    if given.minutes <= 0:
        parser.error("--minutes must be above 0")
    return given


def main(words: list[str]) -> int:
    """Run from the command line."""
    given = arguments(words)
    if given.judge is not None:
        found = judge(history.parse(given.judge.read_bytes().split(b"\n")))
        for name, texts in found.findings.items():
            sys.stdout.write("".join(f"{name}: {text}\n" for text in texts))
        return bool(found.failures(given.profile))
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    plan = Plan(given.minutes, given.profile, given.queue, seed)
    before = {number: signal.signal(number, _stop) for number in _ENDS}
    try:
        report = run(plan, given.history)
    except KeyboardInterrupt:
        say("interrupted: no verdict")
        return FELL_SHORT
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    sys.stdout.write(report.as_json() + "\n" if given.json else report.as_text())
    return report.code


def _stop(number: int, frame: Any) -> None:
    """End the run, once: what comes while it cleans up must not keep it from that."""
    del number, frame
    for end in _ENDS:
        signal.signal(end, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
