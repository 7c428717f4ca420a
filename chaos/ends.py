"""Judges how jobs end: each accepted one in some way, and only in ways that are its own.

**Lost.** A job is lost if it was accepted, has no outcome and is neither in the queue nor on a
shelf, unless a watcher of the broker saw that the queue itself took its message and never noted who
has it. A job that was set aside has ended; one that returns None was superseded, if it may be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from chaos.history import Event
from chaos.judgement import COALESCED, EXPECTED_ERRORS, HASTE, HASTY, POISON, Judgement

NEVER = 2**63
LENIENT = 0.05  # Seconds that two clocks of one machine may differ by.
UNDER_WAY = frozenset(
    {"lock.lost", "lock.duplicate", "job.stranded", "job.crashed", "store.unavailable"}
)


@dataclass(slots=True)
class Job:
    """One job as all processes together tell it.

    Attributes:
        task, resource, effect: what it is to do.
        copies: how often it was accepted.
        ends: how it ended, in its own words.
        outcomes: how often a worker told an end.
        deliveries: how often a worker began to look at it.
        arrived: when it was first delivered.
        parked: how often a worker told that it is parked.
        parked_at: when a worker first told so.
        called: by whom it was published again, and when.
        troubled: whether a worker told of something that a fault had done to it.
    """

    task: str
    resource: str
    effect: str
    copies: int = 0
    ends: set[str] = field(default_factory=set[str])
    outcomes: int = 0
    deliveries: int = 0
    arrived: int = NEVER
    parked: int = 0
    parked_at: int = NEVER
    called: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    troubled: bool = False

    @property
    def untouched(self) -> bool:
        """Whether no fault touched it: each delivery parked it, but the last, which ended it."""
        once = self.copies == self.outcomes == 1
        return once and not self.troubled and self.deliveries == self.parked + 1


def judge_ends(history: Iterable[Event], found: Judgement) -> dict[str, Job]:
    """Judge the end of every job; answers what is known of each, by its id."""
    jobs: dict[str, Job] = {}
    unnoted: set[str] = set()
    for event in history:
        if event["kind"] == "accepted":
            name = event["job"]
            told = Job(event["task"], event["res"], event["effect"])
            jobs.setdefault(name, told).copies += 1
        elif event["kind"] == "never noted":
            unnoted.add(event["job"])
    _follow(history, jobs)
    left = _left(history, jobs, found)
    for event in history:
        if event["kind"] == "outcome":
            _outcome(event, jobs.get(event["job"]), found)
    ended = {name for name, job in jobs.items() if job.ends}
    lost = jobs.keys() - ended - left
    found.counts["jobs"] = len(jobs)
    found.counts["ended"] = len(ended)
    found.counts["lost by the queue"] = len(lost & unnoted)
    found.findings["lost"] += [
        f"job {name} ({jobs[name].task}) was accepted, has no outcome and is nowhere; "
        f"it was delivered {jobs[name].deliveries} times and parked {jobs[name].parked} times"
        for name in sorted(lost - unnoted)
    ]
    for name in lost & unnoted:
        jobs[name].ends.add("lost by the queue")
    return jobs


def _follow(history: Iterable[Event], jobs: Mapping[str, Job]) -> None:
    """Note what happened to each job on its way."""
    by_publication: dict[str, Job] = {}
    for event in history:
        job = jobs.get(event.get("job", ""))
        if event["kind"] == "delivered" and job is not None:
            job.deliveries += 1
            job.arrived = min(job.arrived, event["t"])
            job.troubled |= event["again"]
            by_publication[event["pub"]] = job
        elif event["kind"] == "told" and job is not None:
            job.troubled |= event["name"] in UNDER_WAY
            if event["name"] == "job.parked":
                job.parked += 1
                job.parked_at = min(job.parked_at, event["t"])
    for event in history:
        if event["kind"] == "told" and event["name"] == "job.called":
            called = by_publication.get(event["pub"])
            if called is not None and event["how"] == "published":
                called.called.append((event["p"], event["t"]))


def _left(history: Iterable[Event], jobs: Mapping[str, Job], found: Judgement) -> set[str]:
    """Find the jobs that are still in the queue or in line, and those that were set aside."""
    publications = {e["pub"]: e["job"] for e in history if e["kind"] == "delivered"}
    left: set[str] = set()
    for event in history:
        if event["kind"] not in ("left", "dead"):
            continue
        name = event.get("job") or publications.get(event["pub"], "")
        job = jobs.get(name)
        if event["kind"] == "left":
            left.add(name)
            where = "queue" if "job" in event else "line"
            found.findings["stuck"].append(f"job {name} is still in the {where}")
        elif job is None or not job.effect.startswith(POISON):
            found.findings["set aside"].append(f"job {name} of publication {event['pub']}")
        if event["kind"] == "dead" and job is not None:
            job.ends.add("dead")
    return left


def _outcome(event: Event, job: Job | None, found: Judgement) -> None:
    if event["how"] == "returned":
        ran = job is None or job.task != COALESCED or event["value"] is not None
        end, told = ("ran", "return") if ran else ("superseded", "being superseded")
        if job is not None and ran and event["value"] != job.effect:
            found.findings["wrong replay"].append(
                f"job {event['job']} of effect {job.effect} returned {event['value']!r}"
            )
    else:
        end = told = event["error"]
        if end == "GaveUp" and job is not None and job.task == HASTY:
            end = "gave up"
            waited = (event["t"] - job.arrived) / 1e9
            if waited < HASTE - LENIENT:
                found.findings["gave up early"].append(
                    f"job {event['job']} gave up {waited:.3f} s after it came: {event['text']}"
                )
        elif end not in EXPECTED_ERRORS:
            found.findings["unexpected error"].append(
                f"job {event['job']}: {event['error']}: {event['text']}"
            )
    found.counts[f"ended by {told}"] += 1
    if job is not None:
        job.ends.add(end)
        job.outcomes += 1


def count_ends(jobs: Iterable[Job]) -> Counter[str]:
    """Count jobs by how they ended; one that ended in several ways counts as what did most."""
    ways = ("ran", "superseded", "gave up", "dead")
    return Counter(
        next((way for way in (*ways, *sorted(job.ends)) if way in job.ends), "nowhere")
        for job in jobs
    )
