"""Judges the lines of resources: their order, what is superseded by what, and what a job costs.

**Order.** Who was told to be parked before another job first came stands before it. That job may
overtake it all the same if a fault kept the first from coming when it was called, since nothing is
reserved for longer than five seconds. So only those are judged that were parked once and called
once, by the process that had just ended the term before, and that came at once. Exempt as
overtakers are jobs that supersede others and take their places.

**Superseded.** A job that was superseded is made good by a newer one for the same resource: some
body of its kind begins after it first came, or ends in another way, and not of a job that stood in
line before it.

**Deliveries** are counted for jobs that were parked, and apart for those that no fault touched.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping

from chaos.ends import NEVER, Job, count_ends
from chaos.history import Event
from chaos.judgement import COALESCED, HASTY, Judgement

AT_ONCE = 10**9  # Between the end of a term, the call and the grant; of five seconds.


def judge_line(jobs: Mapping[str, Job], history: Iterable[Event], found: Judgement) -> None:
    """Judge the lines; `jobs` is what `judge_ends` found."""
    parked = [job for job in jobs.values() if job.parked]
    found.counts["parked"] = len(parked)
    for end, count in count_ends(parked).items():
        found.counts[f"parked, then {end}"] += count
    found.counts["ended in two ways"] = sum(len(job.ends) > 1 for job in jobs.values())
    _deliveries(parked, found)
    _order(jobs, history, found)
    _superseded(jobs, history, found)


def _deliveries(parked: Iterable[Job], found: Judgement) -> None:
    for job in parked:
        for of in ("parked", "untouched") if job.untouched else ("parked",):
            most = f"most deliveries of {of}"
            found.counts[f"jobs of {of}"] += 1
            found.counts[f"deliveries of {of}"] += job.deliveries
            found.counts[most] = max(found.counts[most], job.deliveries)


def _order(jobs: Mapping[str, Job], history: Iterable[Event], found: Judgement) -> None:
    grants: dict[str, tuple[int, int]] = {}  # The first of each job: its fence, when it was noted.
    ends: dict[tuple[str, str], list[int]] = defaultdict(list)
    for event in history:
        if event["kind"] == "grant" and event["job"] in jobs:
            grant = event["fence"], event["t"]
            grants[event["job"]] = min(grant, grants.get(event["job"], grant))
        elif event["kind"] == "end":
            ends[event["p"], event["res"]].append(event["t"])
    resources: dict[str, list[tuple[int, str, bool]]] = defaultdict(list)
    for name, (fence, noted) in grants.items():
        fair = _came_at_once(jobs[name], noted, ends)
        found.counts["judged for order"] += fair
        resources[jobs[name].resource].append((fence, name, fair))
    for of_one in resources.values():
        _overtaken(jobs, sorted(of_one), found)


def _overtaken(
    jobs: Mapping[str, Job], granted: Iterable[tuple[int, str, bool]], found: Judgement
) -> None:
    latest = ""  # Of those before, who came last.
    for _, name, fair in granted:
        job = jobs[name]
        if latest and jobs[latest].arrived > job.parked_at:
            found.counts["overtaken after a fault"] += not fair
            if fair:
                found.findings["overtaken"].append(
                    f"{job.resource}: job {name} was in line before job {latest} came, and ran "
                    "after it"
                )
        if job.task != COALESCED and (not latest or job.arrived > jobs[latest].arrived):
            latest = name


def _came_at_once(job: Job, granted: int, ends: Mapping[tuple[str, str], list[int]]) -> bool:
    """Tell whether no fault kept a job from coming when it was called, on evidence alone."""
    if job.task == HASTY or not job.untouched or job.parked != 1 or len(job.called) != 1:
        return False
    caller, called = job.called[0]
    ended = ends.get((caller, job.resource), [])
    before = bisect_right(ended, called)
    return bool(before) and called - ended[before - 1] < AT_ONCE and granted - called < AT_ONCE


def _superseded(jobs: Mapping[str, Job], history: Iterable[Event], found: Judgement) -> None:
    began = {job.effect: 0 for job in jobs.values() if job.task == COALESCED}
    for event in history:
        if event["kind"] == "begin" and event["effect"] in began:
            began[event["effect"]] = max(event["t"], began[event["effect"]])
    resources: dict[str, list[tuple[int, Job]]] = defaultdict(list)
    for job in jobs.values():
        if job.task == COALESCED:
            elsewise = job.ends - {"ran", "superseded"}
            resources[job.resource].append((NEVER if elsewise else began[job.effect], job))
    for name, job in jobs.items():
        if "superseded" not in job.ends:
            continue
        found.counts["superseded"] += 1
        if not any(at >= job.arrived and _newer(by, job) for at, by in resources[job.resource]):
            found.findings["superseded by nobody"].append(
                f"{job.resource}: job {name} was superseded, and none that is newer ran later"
            )


def _newer(one: Job, other: Job) -> bool:
    """Tell whether a job may be the newer one: a further copy of it may have come later."""
    return not one.untouched or one.parked_at > other.arrived
