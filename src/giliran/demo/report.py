"""What a run of the demo did to the books, and whether that is what was promised."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from giliran.demo.broker import Refund, Sent
from giliran.demo.faults import Faults
from giliran.demo.journal import Body, History
from giliran.demo.ledger import Books

KILLS, FREEZES, DUPLICATES = 5, 1, 50


@dataclass(frozen=True, slots=True)
class Report:
    """The figures of one run.

    Attributes:
        jobs: refunds that were asked for.
        effects: refunds that were paid, repeats included.
        double_effects: those beyond the first of each refund.
        overlaps: pairs of bodies that ran on one order while both trusted their lease; unguarded
            bodies always do.
        lost: refunds that were never paid.
        seconds: from the start of the workers to the last message.
        kills: processes killed while running a body.
        freezes: processes frozen beyond the TTL while running a body.
        duplicates: messages that were delivered again, or for a refund that had one before.
        imbalance: by how much the balances are off.
        ambiguous_kills: crashes that fell between an effect and its record: kills, freezes, and
            stalls of a busy machine beyond the TTL; None where nothing is recorded in Redis.
    """

    jobs: int
    effects: int
    double_effects: int
    overlaps: int
    lost: int
    seconds: float
    kills: int
    freezes: int
    duplicates: int
    imbalance: int
    ambiguous_kills: int | None


def overlaps(bodies: Iterable[Body]) -> int:
    """Count the pairs of bodies on one order whose trusted intervals intersect.

    An interval ends with its body, with its process, or with the trust in its lease as far as that
    was noted; the first of these.
    """
    intervals: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for body in bodies:
        intervals[body.order_id].append((body.began, min(body.ended, body.trusted_until)))
    pairs = 0
    for order in intervals.values():
        still: list[float] = []
        for began, ended in sorted(order):
            still = [end for end in still if end > began]
            pairs += len(still)
            still.append(ended)
    return pairs


def duplicates(sent: Sent, received: Mapping[str, int]) -> int:
    """Count deliveries of repeats, and repeated deliveries of first messages."""
    again = sum(received.get(tag, 0) for tag in sent.repeats)
    return again + sum(max(0, received.get(tag, 0) - 1) for tag in sent.firsts)


def make_report(
    mode: str,
    refunds: Sequence[Refund],
    sent: Sent,
    books: Books,
    history: History,
    faults: Faults,
    seconds: float,
) -> Report:
    """Count."""
    paid = len(set(books.effects))
    crashed = {body.name for body in chain(faults.killed, faults.thawed)}
    crashed |= {body.name for body in history.bodies.values() if body.stalled}
    return Report(
        jobs=len(refunds),
        effects=len(books.effects),
        double_effects=len(books.effects) - paid,
        overlaps=overlaps(history.bodies.values()),
        lost=len(refunds) - paid,
        seconds=round(seconds, 1),
        kills=len(faults.killed),
        freezes=len(faults.thawed),
        duplicates=duplicates(sent, history.received),
        imbalance=books.paid - sum(refund.amount for refund in refunds),
        ambiguous_kills=len(crashed & books.bodies) if mode == "redis_record" else None,
    )


def failures(reports: Mapping[str, Report]) -> list[str]:
    """Answer every promise that was not kept, in words that begin with the run's name."""
    guarded, record = reports["guarded"], reports["redis_record"]
    kept = {
        "unguarded: double_effects > 0": reports["unguarded"].double_effects > 0,
        "guarded: double_effects == 0": guarded.double_effects == 0,
        "guarded: overlaps == 0": guarded.overlaps == 0,
        "guarded: lost == 0": guarded.lost == 0,
        "guarded: imbalance == 0": guarded.imbalance == 0,
        f"guarded: kills >= {KILLS}": guarded.kills >= KILLS,
        f"guarded: freezes >= {FREEZES}": guarded.freezes >= FREEZES,
        f"guarded: duplicates >= {DUPLICATES}": guarded.duplicates >= DUPLICATES,
        "redis_record: double_effects <= ambiguous_kills": (
            record.double_effects <= (record.ambiguous_kills or 0)
        ),
    }
    return [f"{promise} does not hold" for promise, yes in kept.items() if not yes]
