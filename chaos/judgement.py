"""What a checker finds: counts, and for each check what violates it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

# What a server that forgot acknowledged writes excuses; the rest must hold even then.
EXCUSED_BY_LOSS = frozenset(
    {
        "lost", "overlap", "double in plain sink", "ran after done", "overtaken",
        "superseded by nobody",
    }
)  # fmt: skip
EXPECTED_ERRORS = frozenset({"Refused", "StoreUnavailable"})

# Jobs of these names end in ways of their own.
COALESCED = "newest"  # May be superseded by a later one for the same resource: returns None.
HASTY = "hasty"  # May give up, but not sooner than `HASTE` after it first came.
RESOURCES = 40
HASTE = 2.0
POISON = "poison:"  # Begins the effect of a job that cannot be published again: may be set aside.

ALWAYS = (
    "lost", "stuck", "set aside", "superseded by nobody", "gave up early", "overtaken",
    "line left", "orphan", "immortal key", "fence order", "fence shared", "stale accepted",
    "overlap", "double in ledger", "double in plain sink", "ran after done", "phantom outcome",
    "wrong replay", "unexpected error",
)  # fmt: skip


@dataclass(slots=True)
class Judgement:
    """What was found.

    Attributes:
        counts: how much there was of what.
        findings: for each check what violates it, in words.
    """

    counts: Counter[str] = field(default_factory=Counter[str])
    findings: dict[str, list[str]] = field(
        default_factory=lambda: {check: list[str]() for check in ALWAYS}
    )

    def failures(self, profile: str) -> list[str]:
        """Name the checks that fail in this profile."""
        excused = EXCUSED_BY_LOSS if profile == "loss" else frozenset[str]()
        return [name for name, found in self.findings.items() if found and name not in excused]


@dataclass(slots=True)
class Term:
    """One lease as its holder's events tell it."""

    resource: str
    fence: int
    process: str
    token: str
    effect: str
    asked: int
    granted: int
    begun: int
    trusted: int
    ended: int | None = None
    saw_lost: int | None = None

    @property
    def trust_ends(self) -> int:
        """When the holder surely trusted it no more; see the rule above."""
        ends = [at for at in (self.ended, self.saw_lost) if at is not None]
        return min([self.trusted, *ends])

    def __str__(self) -> str:
        return f"{self.resource} fence {self.fence} of {self.process} (token {self.token})"
