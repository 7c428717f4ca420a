"""The verdict, for people and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

from chaos.judgement import EXCUSED_BY_LOSS, Judgement
from chaos.plan import Plan

# What must have happened at least once, else the run proves nothing.
COVERAGE = {
    "zombie writes fenced off": "zombie writes fenced off",
    "replays": "job.replayed",
    "leases lost while running": "lock.lost",
    "copies of a running delivery put back": "lock.duplicate",
    "contended": "lock.contended",
    "parked": "job.parked",
    "superseded": "superseded",
    "gave up": "ended by GaveUp",
    "replies dropped": "struck drop reply",
}
FAILED, FELL_SHORT = 1, 2
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Report:
    """A judged run."""

    plan: Plan
    seconds: float
    done: Counter[str]
    judgement: Judgement

    @property
    def unbitten(self) -> list[str]:
        """What never happened although it should."""
        return [name for name, count in self.coverage().items() if not count]

    @property
    def code(self) -> int:
        """The exit code: 0 as promised, 1 not, 2 too little was done to say so."""
        if self.judgement.failures(self.plan.profile):
            return FAILED
        if self.unbitten:
            return FAILED
        return FELL_SHORT if self.plan.missing(self.done) else 0

    def coverage(self) -> dict[str, int]:
        """Count the rare branches that were taken."""
        counts = self.judgement.counts
        return {
            name: sum(count for key, count in counts.items() if key.startswith(prefix))
            for name, prefix in COVERAGE.items()
        }

    def as_json(self) -> str:
        """Write everything as one line of JSON."""
        plan, judgement = self.plan, self.judgement
        return json.dumps(
            {
                "minutes": plan.minutes,
                "profile": plan.profile,
                "queue": plan.queue,
                "seed": plan.seed,
                "seconds": round(self.seconds, 1),
                "targets": plan.targets(),
                "done": dict(self.done),
                "missing": plan.missing(self.done),
                "coverage": self.coverage(),
                "counts": dict(judgement.counts),
                "found": {name: len(found) for name, found in judgement.findings.items()},
                "examples": {
                    name: found[:SHOWN] for name, found in judgement.findings.items() if found
                },
                "failures": judgement.failures(plan.profile),
                "code": self.code,
            }
        )

    def as_text(self) -> str:
        """Write it for people."""
        plan = self.plan
        lines = [
            f"chaos: {plan.queue} queue, {plan.profile} profile, seed {plan.seed}",
            self._line("reached", [*self._reached(), f"in {self.seconds:.0f} s"]),
            self._line("ended", self._ended()),
            self._line("struck", self._struck()),
            self._line("bitten", [f"{n} {name}" for name, n in self.coverage().items()]),
            self._line("in line", self._in_line()),
            *self._checks(),
            *self._doubles(),
            "",
            self._verdict(),
        ]
        return "\n".join(lines) + "\n"

    @staticmethod
    def _line(title: str, parts: list[str]) -> str:
        return f"  {title:8} " + " · ".join(parts)

    def _reached(self) -> list[str]:
        return [f"{self.done[name]}/{n} {name}s" for name, n in self.plan.targets().items()]

    def _ended(self) -> list[str]:
        counts = self.judgement.counts
        ways = [key for key in sorted(counts) if key.startswith("ended by ")]
        return [f"{counts[way]} {way.removeprefix('ended ')}" for way in ways]

    def _in_line(self) -> list[str]:
        counts = self.judgement.counts
        ways = [key for key in sorted(counts) if key.startswith("parked, then ")]
        ends = ", ".join(f"{counts[way]} {way.removeprefix('parked, then ')}" for way in ways)
        untouched, judged = counts["jobs of untouched"], counts["judged for order"]
        others = counts["overtaken after a fault"]
        return [
            f"{counts['parked']} parked: {ends}",
            f"deliveries of each {self._deliveries('parked')}",
            f"of {untouched} that no fault touched {self._deliveries('untouched')}",
            f"{judged} judged for order, {others} others overtaken",
        ]

    def _deliveries(self, of: str) -> str:
        counts = self.judgement.counts
        mean = counts[f"deliveries of {of}"] / max(1, counts[f"jobs of {of}"])
        return f"{mean:.2f} mean, {counts[f'most deliveries of {of}']} most"

    def _struck(self) -> list[str]:
        counts = self.judgement.counts
        others = [
            f"{n} {key.removeprefix('nemesis ')}"
            for key, n in sorted(counts.items())
            if key.startswith("nemesis ")
            and key.removeprefix("nemesis ") not in self.plan.targets()
        ]
        return others + [
            f"{n} {key.removeprefix('struck ')}"
            for key, n in sorted(counts.items())
            if key.startswith("struck ") and n
        ]

    def _checks(self) -> list[str]:
        lines: list[str] = []
        counts = self.judgement.counts
        size = {"lost": "jobs", "overlap": "terms", "double in ledger": "effects in ledger"}
        for name, found in self.judgement.findings.items():
            text = f"  {len(found):6} {name}"
            if name in size:
                text += " " + bound(len(found), counts[size[name]], size[name])
            if found and self.plan.profile == "loss" and name in EXCUSED_BY_LOSS:
                text += ": counted, not judged, since this server forgets"
            lines += [text, *(f"           {example}" for example in found[:SHOWN])]
        return lines

    def _doubles(self) -> list[str]:
        counts = self.judgement.counts
        crashes = counts["crashes between effect and record"]
        losses = counts["losses between effect and record"]
        doubles = (
            f"  {counts['doubles in plain sink']:6} doubles in the plain sink, of "
            f"{counts['effects in plain sink']} effects; excused at most {crashes + losses}: "
            f"{crashes} crashes and {losses} losses between effect and record"
        )
        beside = (
            f"  {counts['bodies beside each other']:6} bodies that ran on beside the next holder "
            "(nobody can promise none)"
        )
        gone = (
            f"  {counts['lost by the queue']:6} lost by the queue itself: taken from the broker "
            "by a worker that was killed before it noted them"
        )
        return [doubles, beside, gone] if self.plan.queue == "celery" else [doubles, beside]

    def _verdict(self) -> str:
        failures = self.judgement.failures(self.plan.profile)
        if failures:
            return "FAILED: " + ", ".join(failures)
        if self.unbitten:
            return "FAILED: the test did not bite: no " + ", no ".join(self.unbitten)
        missing = self.plan.missing(self.done)
        if missing:
            short = ", ".join(f"{name} {how}" for name, how in missing.items())
            return f"NO VERDICT: fell short of {short}"
        return "as promised, under this mix of faults"


def bound(found: int, tries: int, of: str) -> str:
    """Say what seeing none in so many tries means: the rule of three."""
    if found or not tries:
        return f"in {tries} {of}"
    return f"in {tries} {of}: < {300 / tries:.3g} % at 95 %"
