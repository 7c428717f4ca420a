"""Judges effects: how often each happened, and which crash or loss excuses another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chaos.history import Event
from chaos.judgement import Judgement, Term


@dataclass(slots=True)
class _Effects:
    """What became of the effects with one key."""

    in_plain_sink: int = 0
    ambiguous: int = 0
    confirmed_fence: int | None = None

    def confirm(self, fence: int) -> None:
        """Note that the holder of this fence told the queue that it is done."""
        first = self.confirmed_fence
        self.confirmed_fence = fence if first is None else min(first, fence)


def judge_effects(history: Sequence[Event], terms: Iterable[Term], found: Judgement) -> None:
    """Judge what took effect how often, and what was told of it."""
    effects: dict[str, _Effects] = defaultdict(_Effects)
    processes: dict[str, list[Event]] = defaultdict(list)
    for event in history:
        processes[event["p"]].append(event)
    for events in processes.values():
        _settle(events, effects, found)
    for name, effect in effects.items():
        doubles = max(0, effect.in_plain_sink - 1)
        found.counts["doubles in plain sink"] += doubles
        if doubles > effect.ambiguous:
            found.findings["double in plain sink"].append(
                f"effect {name} {effect.in_plain_sink} times, {effect.ambiguous} excused"
            )
    for term in terms:
        fence = effects[term.effect].confirmed_fence
        if fence is not None and term.fence > fence:
            found.findings["ran after done"].append(f"effect {term.effect}: {term}")
    _phantoms(history, effects, found)


def _settle(events: Iterable[Event], effects: dict[str, _Effects], found: Judgement) -> None:
    """Go through one process' events, and see which effect was followed by which word."""
    pending: Event | None = None

    def excuse(why: str) -> None:
        nonlocal pending
        if pending is not None and pending["sink"] == "plain":
            effects[pending["effect"]].ambiguous += 1
            found.counts[f"{why} between effect and record"] += 1
        pending = None

    for event in events:
        match event["kind"]:
            case "effect" | "repeated":
                pending = event
                effects[event["effect"]].in_plain_sink += event["sink"] == "plain"
                found.counts["effects in plain sink"] += event["sink"] == "plain"
            case "outcome" if event["how"] == "returned":
                if pending is not None:
                    effects[pending["effect"]].confirm(pending["fence"])
                pending = None
            case "outcome" | "put_back" | "stranded":
                excuse("losses")
            case "delivered" | "begin":
                excuse("losses")  # Celery tells nothing when it puts back.
            case _:
                pass
    excuse("crashes")


def _phantoms(history: Iterable[Event], effects: dict[str, _Effects], found: Judgement) -> None:
    wanted: dict[str, str] = {}
    there = {name for name, effect in effects.items() if effect.in_plain_sink}
    returned: set[str] = set()
    for event in history:
        match event["kind"]:
            case "accepted":
                wanted[event["job"]] = event["effect"]
            case "row":
                there.add(event["effect"])
            case "outcome" if event["how"] == "returned" and event["value"] is not None:
                returned.add(event["job"])
            case _:
                pass
    found.findings["phantom outcome"] += [
        f"job {job} returned, and its effect {wanted[job]} never happened"
        for job in sorted(returned & wanted.keys())
        if wanted[job] not in there
    ]
