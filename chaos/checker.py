"""Judges a history, knowing nothing of the library: what happened is enough.

Fences make the order of grants readable, so every check is a sort and one pass, never a search.

**Trust.** A lease is trusted from the moment its grant was noted until the earliest of: the end of
its body; the first event at which the holder itself saw it lost; the last `trusted_until` that it
noted. That is evidence only, so there are no false alarms: renewals push `trusted_until` out, and
what was not noted is not assumed. It leaves no blind spot that matters: a body notes it when it
begins, every few hundredths of a second while it runs, at its effect and at its end. A killed or
frozen holder counts as trusting up to its last noted `trusted_until`, as it would if it woke: the
server must not have given the lease away before.

**Order.** A grant happened after its request was sent (`asked`) and before it was noted. A larger
fence that was noted before a smaller one was asked for is a violation.

**Ambiguous effects.** An effect is *confirmed* if the next thing that its process told the queue is
that this job returned. Otherwise the process died before it could (a crash) or the lease was lost
in between (a loss), and the job rightly runs again. Each such effect excuses one double, no more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from chaos.effects import judge_effects
from chaos.ends import judge_ends
from chaos.history import Event
from chaos.in_line import judge_line
from chaos.judgement import Judgement, Term


def judge(history: Sequence[Event]) -> Judgement:
    """Judge the events of all processes; each process' own must be in the order it wrote them."""
    found = Judgement()
    terms = _terms(history)
    found.counts["terms"] = len(terms)
    jobs = judge_ends(history, found)
    judge_line(jobs, history, found)
    _fences(terms, found)
    _trust(terms, found)
    _ledger(history, found)
    judge_effects(history, terms, found)
    _audit(history, found)
    return found


def _terms(history: Iterable[Event]) -> list[Term]:
    terms: dict[tuple[str, str, str], Term] = {}  # A token may be of several resources.
    grants: dict[tuple[str, str, int], int] = {}
    for event in history:
        at, process = event["t"], event["p"]
        if event["kind"] == "grant":
            grants[process, event["res"], event["fence"]] = at
        if "token" not in event or event["kind"] == "row":
            continue
        name = process, event["token"], event["res"]
        if event["kind"] == "begin":
            granted = grants.get((process, event["res"], event["fence"])) or at
            terms[name] = Term(
                event["res"], event["fence"], process, event["token"], event["effect"],
                event["asked"], granted, at, event["trusted"],
            )  # fmt: skip
        term = terms[name]
        term.trusted = max(term.trusted, event["trusted"])
        if event["lost"] and term.saw_lost is None:
            term.saw_lost = at
        if event["kind"] == "end":
            term.ended = at
    return list(terms.values())


def _by_resource(terms: Iterable[Term]) -> list[list[Term]]:
    resources: dict[str, list[Term]] = defaultdict(list)
    for term in terms:
        resources[term.resource].append(term)
    return list(resources.values())


def _fences(terms: Iterable[Term], found: Judgement) -> None:
    for of_one in _by_resource(terms):
        of_one.sort(key=lambda term: term.fence)
        for lower, upper in pairwise(of_one):
            if lower.fence == upper.fence:
                found.findings["fence shared"].append(f"{lower} and {upper}")
        later = None  # Of those with a larger fence the one that was noted first.
        for term in reversed(of_one):
            if later is not None and later.granted < term.asked:
                found.findings["fence order"].append(f"{later} was granted before {term}")
            if later is None or term.granted < later.granted:
                later = term


def _trust(terms: Iterable[Term], found: Judgement) -> None:
    for of_one in _by_resource(terms):
        of_one.sort(key=lambda term: term.granted)
        reaches = bodies = None  # Of those before, whose trust or body reaches furthest.
        for term in of_one:
            if reaches and term.granted < min(reaches.trust_ends, term.trust_ends):
                by = (min(reaches.trust_ends, term.trust_ends) - term.granted) / 1e6
                found.findings["overlap"].append(f"{reaches} and {term}, by {by:.1f} ms")
            if reaches is None or term.trust_ends > reaches.trust_ends:
                reaches = term
            if bodies and bodies.ended and term.begun < bodies.ended:
                found.counts["bodies beside each other"] += 1
            if bodies is None or (term.ended or 0) > (bodies.ended or 0):
                bodies = term


def _ledger(history: Iterable[Event], found: Judgement) -> None:
    rows = sorted((e for e in history if e["kind"] == "row"), key=lambda row: row["seq"])
    largest: dict[str, int] = {}
    times: Counter[str] = Counter()
    for row in rows:
        resource, fence = row["res"], row["fence"]
        if fence < largest.get(resource, 0):
            found.findings["stale accepted"].append(
                f"{resource}: fence {fence} was written after {largest[resource]}"
            )
        largest[resource] = max(fence, largest.get(resource, 0))
        times[row["effect"]] += 1
    found.counts["effects in ledger"] = len(rows)
    found.findings["double in ledger"] += [
        f"effect {effect} {count} times" for effect, count in times.items() if count > 1
    ]


def _audit(history: Iterable[Event], found: Judgement) -> None:
    for event in history:
        match event["kind"]:
            case "orphan" | "line left" | "immortal":
                check = "immortal key" if event["kind"] == "immortal" else event["kind"]
                found.findings[check].append(event["key"])
            case "traceback" | "crash":
                found.findings["unexpected error"].append(f"{event['p']}: {event['text']}")
            case "struck":
                found.counts["struck " + event["name"]] += event["hits"]
            case _:
                _count(event, found.counts)


def _count(event: Event, counts: Counter[str]) -> None:
    match event["kind"]:
        case "fenced":
            counts["zombie writes fenced off"] += 1
        case "repeated":
            counts["repeats stopped by the ledger"] += 1
        case "told":
            counts[event["name"]] += 1
        case "nemesis":
            counts[f"nemesis {event['name']}"] += 1
        case "delivered" if event.get("again"):
            counts["found in own in-flight list"] += 1
        case _:
            pass
