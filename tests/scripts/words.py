"""Tokens, values and arguments that the tables are written with."""

from __future__ import annotations

from tests.scripts.backends import Key

A, B = "a" * 32, "b" * 32
TAIL = ";ttl=30000;max_hold=60000;pub=p1;job=j1;type=t;route=q;host=h;pid=1"
OTHERS = ";ttl=30000;max_hold=60000;pub=p2;job=j2;type=t;route=q;host=h;pid=2"
FOREIGN = "somebody-else"
FENCE_LIFE = 86_400_000 + 60_000


def lock(token: str = A, tail: str = TAIL, acquired: str = "@-500", px: int | None = 20_000) -> Key:
    """A held lock with fence 7."""
    return Key(f"{token};v=1;fence=7;acquired={acquired}{tail}", px)


def lock_after(px: int, fence: str = r"\d{16}", token: str = A) -> Key:
    """A lock as a claim leaves it."""
    return Key(rf"{token};v=1;fence={fence};acquired=\d{{13}}{TAIL}", px)


def record(state: str, **fields: str) -> Key:
    """A record of token B's attempt."""
    base = {"state": state, "fingerprint": "f", "token": B, "fence": "5", "attempt": "1"}
    return Key({**base, "started": "1", **fields})


def running_after(attempt: int, px: int = 90_000) -> Key:
    """A record as a claim of A leaves it."""
    return Key(
        {
            "state": "running", "fingerprint": "f", "token": A, "fence": r"\d{16}",
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
) -> tuple[str, ...]:
    """The arguments of a claim."""
    return (
        token, ttl, max_hold, TAIL, publication, kind, fingerprint, record_ms, after_crash,
        attempts, elder,
    )  # fmt: skip


def finish(
    ending: str = "release",
    resend: str = "0",
    token: str = A,
    result: str = "5",
    retain: str = "90000",
) -> tuple[str, ...]:
    """The arguments of a finish."""
    return (token, resend, ending, "f", result, retain)
