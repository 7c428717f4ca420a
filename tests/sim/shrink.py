"""Makes a failing schedule small, writes it down and reads it again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.sim.play import Play
from tests.sim.violation import Violation

FOLDER = Path(__file__).with_name("schedules")
FINE = ("S8", "FIFO")  # There is more than one way to break these.
Schedule = dict[str, Any]


def failure(schedule: Mapping[str, Any]) -> tuple[str, Schedule]:
    """Play a schedule; answer what must not have happened ("": nothing) and what was decided."""
    play = Play(0, schedule)
    try:
        play.run()
    except Violation as noticed:
        return str(noticed), play.choices.taken
    return "", play.choices.taken


def kind(message: str) -> str:
    """Name the invariant, so that one failure is not mistaken for another on the way."""
    head = message.partition(": ")[0]
    if len(head) <= 4 and head not in FINE:
        return head
    return " ".join(word for word in message.split() if word.isalpha())


def shrink(schedule: Mapping[str, Any], most: int = 2000) -> Schedule:
    """Leave out decisions, in large pieces and then one by one, while the same thing happens."""
    said, best = failure(schedule)
    if not said:
        raise ValueError("nothing happens under this schedule")
    wanted, plays = kind(said), 0
    piece = max(1, len(best) // 2)
    while True:
        shorter = False
        for without in _without(best, piece):
            plays += 1
            told, taken = failure(without)
            if told and kind(told) == wanted and len(taken) < len(best):
                best, shorter = taken, True
                break
            if plays >= most:
                return best
        if not shorter:
            if piece == 1:
                return best
            piece = max(1, piece // 2)


def _without(schedule: Schedule, piece: int) -> Iterator[Schedule]:
    """Late decisions first: what comes after them stays as it was."""
    names = list(schedule)
    for end in range(len(names), 0, -piece):
        gone = set(names[max(0, end - piece) : end])
        yield {name: value for name, value in schedule.items() if name not in gone}


def save(path: Path, mutant: str, said: str, schedule: Schedule) -> None:
    """Write a schedule down, with what it showed and on which mutant."""
    lines = [f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in schedule.items()]
    head = json.dumps({"mutant": mutant, "said": said}, indent=2)[:-2]
    path.write_text(f'{head},\n  "schedule": {{\n' + ",\n".join(lines) + "\n  }\n}\n")


def load(path: Path) -> tuple[str, str, Schedule]:
    """Read mutant, what it said, and schedule."""
    whole = json.loads(path.read_text())
    return whole["mutant"], whole["said"], whole["schedule"]


def replay(schedule: Mapping[str, Any], run: Callable[[Play], object] = Play.run) -> str:
    """Play a kept schedule; answer what it shows, "" for nothing.

    Raises:
        LookupError: if it names a decision that nobody asks for any more.
    """
    play, said = Play(0, schedule), ""
    try:
        run(play)
    except Violation as noticed:
        said = str(noticed)
    if play.choices.unused():
        raise LookupError(f"the schedule no longer applies: nobody decides {play.choices.unused()}")
    return said
