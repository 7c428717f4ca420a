"""Tokens, values and arguments that the tables are written with."""

from __future__ import annotations

import re

from tests.scripts.backends import FENCE, LINE, PARKED, Key
from tests.sim.fake_redis import SortedSet

A, B = "a" * 32, "b" * 32
TAIL = ";ttl=30000;max_hold=60000;pub=p1;job=j1;type=t;route=q;host=h;pid=1"
OTHERS = ";ttl=30000;max_hold=60000;pub=p2;job=j2;type=t;route=q;host=h;pid=2"
FOREIGN = "somebody-else"
NOBODY = r"\[\]"  # was called
FENCE_LIFE = 86_400_000 + 60_000


def lock(token: str = A, tail: str = TAIL, acquired: str = "@-500", px: int | None = 20_000) -> Key:
    """A held lock with fence 7."""
    return Key(f"{token};v=1;fence=7;acquired={acquired}{tail}", px)


HELD = {"K": lock(B, OTHERS)}
# A holder that died: its lock, and what is told of it.
DIED = {"K": lock(B, OTHERS, acquired="1")}
TOLD = f"v=1;fence=7;acquired=1{OTHERS}"


def lock_after(px: int, fence: str = r"\d{16}", token: str = A) -> Key:
    """A lock as a claim leaves it."""
    return Key(rf"{token};v=1;fence={fence};acquired=\d{{13}}{TAIL}", px)


# What a claim answers, and what it leaves.
CLAIMED = ["held", r"\d{16}", "1"]
TAKEN = {"K": lock_after(30_000), FENCE: Key(r"\d{16}", FENCE_LIFE)}
# The fence as a reclaim leaves it.
RISEN = {FENCE: Key(r"\d{16}", 172_800_000)}


def record(state: str, **fields: str) -> Key:
    """A record of token B's attempt."""
    base = {"state": state, "fingerprint": "f", "token": B, "fence": "5", "attempt": "1"}
    return Key({**base, "started": "1", **fields})


def running_after(attempt: int, px: int = 90_000, fence: str = r"\d{16}") -> Key:
    """A record as a claim of A leaves it."""
    return Key(
        {
            "state": "running", "fingerprint": "f", "token": A, "fence": fence,
            "attempt": str(attempt), "started": r"\d{13}",
        },
        px,
    )  # fmt: skip


def claim(
    token: str = A,
    ttl: str = "30000",
    max_hold: str = "60000",
    publication: str = "p1",
    kind: str = "record",
    fingerprint: str = "f",
    record_ms: str = "90000",
    after_crash: str = "retry",
    attempts: str = "6",
    elder: str = "",
    ticket: str = "",
    rank: str = "",
    alive: str = "",
) -> tuple[str, ...]:
    """The arguments of a claim."""
    return (
        token, ttl, max_hold, TAIL, publication, kind, fingerprint, record_ms, after_crash,
        attempts, elder, ticket, rank, alive,
    )  # fmt: skip


def plain(**more: str) -> tuple[str, ...]:
    """The arguments of a claim without a record."""
    return claim(kind="", **more)


def finish(
    ending: str = "release",
    resend: str = "0",
    token: str = A,
    result: str = "5",
    retain: str = "90000",
    ticket: str = "",
    routes: str = "|a|",
) -> tuple[str, ...]:
    """The arguments of a finish."""
    return (token, resend, ending, "f", result, retain, ticket, routes)


# ------------------------------------------------------------------ the line


def reserved(ticket: str, by: str = A, rank: str = "10", px: int = 4_000) -> Key:
    """A lock that is kept for a ticket."""
    return Key(
        f"reserved;v=1;by={by};pub={ticket};rank={rank};acquired=@-1000;type=next in line", px
    )


def reserved_after(ticket: str, px: int = 5_000, by: str = A) -> Key:
    """A lock as a call leaves it."""
    return Key(
        f"reserved;v=1;by={by};pub={re.escape(ticket)};rank=[0-9]+;acquired=[0-9]{{13}}"
        ";type=next in line",
        px,
    )


def ranks(px: int | None = None, /, **scores: float) -> Key:
    """A line, or deadlines."""
    return Key(SortedSet(scores), px)


def entry(
    kind: str = "job",
    called: int = 0,
    by: str = "",
    ends: str = "@60000",
    verdict: str = "",
    group: str = "",
    route: str = "a",
) -> str:
    """One entry of the parked hash."""
    return f"{kind}|{called}|{by}|{ends}|{verdict}|{group}|{route}"


def entry_after(
    kind: str = "job",
    called: int = 0,
    by: str = "",
    verdict: str = "",
    group: str = "",
    route: str = "a",
) -> str:
    """An entry as a script leaves it."""
    return entry(kind, called, by, "[0-9]+", verdict, group, route).replace("|", "[|]")


def waiter(called: int = 0, ends: str = "@9000") -> str:
    """The entry of a process that waits."""
    return entry("wait", called, ends=ends, route="")


def dead(verdict: str = "", kept: str = "") -> Key:
    """Job t1 set aside, behind those that were."""
    told = rf"t1\|\d{{13}}\|{verdict}\|a\|P1"
    return Key([kept, told] if kept else [told], 2_592_000_000)


def shelf(px: int | None = None, /, **fields: str) -> Key:
    """A parked hash: `t1="..."` is an entry, `t1_="..."` its payload, `_g="t1"` a group."""
    named: dict[str, str] = {}
    for name, value in fields.items():
        if name.startswith("_"):
            named[f"/{name[1:]}"] = value
        elif name.endswith("_"):
            named[f"+{name[:-1]}"] = value
        else:
            named[f"={name}"] = value
    return Key(named, px)


# Two jobs in line, the same and t1 is called, or one process that waits.
JOBS = {LINE: ranks(t1=10, t2=20), PARKED: shelf(t1=entry(), t1_="P1", t2=entry(), t2_="P2")}
FOR_T1 = {"K": reserved("t1", by=B), **JOBS}
WAITING = {LINE: ranks(9_000, w=10), PARKED: shelf(9_000, w=waiter())}


def called(
    kind: str, ticket: str, rank: str = "10", verdict: str = "", route: str = "a", payload: str = ""
) -> str:
    """Write who was called, as a pattern for a reply."""
    return re.escape(str([kind, ticket, rank, verdict, route, payload]))


T1, T2 = called("job", "t1", payload="P1"), called("job", "t2", "20", payload="P2")


def park(
    ticket: str = "t1",
    route: str = "a",
    payload: str = "P1",
    rank: str = "",
    ends: str = "9000000000000",
    most: str = "100",
    group: str = "",
    durable: str = "0",
    token: str = A,
    retain: str = "3600000",
) -> tuple[str, ...]:
    """The arguments of a park."""
    return (ticket, route, payload, rank, ends, most, group, durable, token, retain)


def leave(ticket: str = "w", token: str = A, routes: str = "|a|") -> tuple[str, ...]:
    """The arguments of a leave."""
    return (ticket, token, routes)


def reclaim(token: str = A, told: str = TOLD, routes: str = "|a|") -> tuple[str, ...]:
    """The arguments of a reclaim."""
    return (token, told, routes)


def sweep(token: str = A, routes: str = "|a|") -> tuple[str, ...]:
    """The arguments of a sweep."""
    return (token, routes)
