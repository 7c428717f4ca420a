"""What a large run must have seen: every fault, and every branch that is rarely taken."""

from __future__ import annotations

from collections import Counter

from tests.sim.network import REQUESTS, TROUBLES
from tests.sim.play import Play
from tests.sim.several_plan import SEEN

ENOUGH_SEEDS = 200

WANTED: dict[str, tuple[str, ...]] = {
    "requests": REQUESTS,
    "the store": TROUBLES,
    "processes and broker": (
        "pause", "crash", "duplicate delivery", "visible again", "published, then crashed",
        "job.stranded", "liveness: only a core was healed", "time limit", "control flow", "retry",
    ),
    "branches of the protocol": (
        "claim sent again found its lease", "reply came too late to be read", "finish sent again",
        "finish: released", "finish: lost", "renew: 0", "renew: -1", "lock.renew_failed",
        "lock.lost: expired", "lock.lost: taken", "lock.lost: unreachable", "lock.lost: max_hold",
        "abandon", "abandon of a lease that was ours", "fenced write refused",
        "record.unrecorded: OOM", "record.unrecorded: MISCONF", "replay of done",
        "replay of failed",
    ),
    "how jobs go on": (
        "job.requeued: contended", "job.requeued: unavailable", "job.requeued: expired",
        "job.requeued: taken", "job.requeued: unreachable", "lock.duplicate: publication",
        "lock.duplicate: elder",
    ),
    "how jobs end": (
        "job.ran", "job.failed", "job.crashed", "job.replayed", "job.skipped",
        "job.gave_up: contention", "job.gave_up: recoveries", "job.refused: in_doubt",
        "job.refused: key_reused", "gave up an outage",
    ),
    "who is called, and how": (
        "finish called the next", "sweep called the next", "reclaim called the next",
        "leave called the next", "called: job", "called: wait", "called again", "lines: hurry",
        "bell", "granted in turn", "a reservation yields to who was there before",
        "a waiter is killed", "a waiter that is gone is passed over",
        "three or more sweep at once", "lock.reclaimed", "examined, and alive",
    ),
    "parked jobs": (
        "job.parked by HandOff", "job.parked by Coalesce", "job.parked by Requeue",
        "job.skipped behind a line", "job.failed behind a line", "cannot be shelved",
        "job.failed: line full", "verdict: gave_up", "verdict: superseded",
        "job.skipped: superseded", "parked in a line that is marked no more",
    ),
    "called jobs": (
        "publish: taken", "publish: unreachable", "publish: unheard", "publish: revoked",
        "publish: refused", "publish: deadly", "published after its reservation",
        "published over a minute after it was called", "dead by offer", "dead by sweep",
        "job.dead", "back from the dead",
    ),
    "late copies": (
        "back in line at its old rank", "back in line before a copy",
        "a copy without a rank stands behind", "a copy is parked already",
        "replay of superseded",
    ),
    "several resources": SEEN,
    "counted, and excused": (
        "effect again, after a crash or a loss", "holders at once",
        "fence order after a loss and a clock set back",
        "coalesce: an older job came back",
    ),
}  # fmt: skip


def seen(play: Play) -> Counter[str]:
    """Count what one play has seen."""
    return play.world.happened + play.world.oracle.seen + play.world.oracle.counted


def table(counts: Counter[str]) -> str:
    """Write the counts for people."""
    lines: list[str] = []
    for group, names in WANTED.items():
        lines.append(group)
        lines += [f"  {name:48} {counts[name]:>10,}" for name in names]
    return "\n".join(lines)


def missing(counts: Counter[str]) -> list[str]:
    """Name what was never seen."""
    return [name for names in WANTED.values() for name in names if not counts[name]]
