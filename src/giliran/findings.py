"""What a check finds, told so that it can be put right without reading a manual."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning"]
NAMED = 3  # How many jobs a report names before it counts them.


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not fit.

    Attributes:
        severity: "error" if a worker should not start like this.
        code: a stable name in kebab case.
        subject: the name of the job it is about.
        what: the values that do not fit, with units.
        why: what happens because of it.
        fix: what to change, with numbers.
    """

    severity: Severity
    code: str
    subject: str
    what: str
    why: str
    fix: str

    @property
    def text(self) -> str:
        """What, why and fix as one line for people."""
        return f"{self.what}. Why: {self.why}. Fix: {self.fix}."


def grouped(findings: Iterable[Finding]) -> list[tuple[Finding, str]]:
    """Tell alike findings once, errors first, each with the names of its jobs."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for found in sorted(findings, key=lambda f: (f.severity, f.code, f.subject)):
        groups.setdefault((found.severity, found.code, found.text), []).append(found)
    return [(alike[0], _names([found.subject for found in alike])) for alike in groups.values()]


def _names(subjects: list[str]) -> str:
    shown, more = ", ".join(subjects[:NAMED]), len(subjects) - NAMED
    return shown if more <= 0 else f"{shown} and {more} more, {len(subjects)} in all"
