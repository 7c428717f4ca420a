"""Every rule fires where it must, not before, and says so in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from giliran import Giliran, coalesce, fail, hand_off, requeue, skip, wait
from giliran.checks import check
from giliran.findings import Finding, grouped
from giliran.guard import Guard
from giliran.limits import Limits
from giliran.timeouts import MAX_HOLD_MAX


def guard(**options: Any) -> Guard:
    """Make a guard; nothing here ever asks Redis."""
    turns = Giliran("redis://127.0.0.1:1/0")
    options.setdefault("max_hold", 600)

    @turns.exclusive("lock:{order}", **options)
    def work(order: str) -> None:
        del order

    made: Guard = cast("Any", work).__giliran__
    return made


def found(options: dict[str, Any], limits: dict[str, Any]) -> list[Finding]:
    limits.setdefault("subject", "refund")
    return check(guard(**options), Limits(**limits))


@dataclass
class Row:
    """What makes one rule fire, alone, and a step back from it that does not."""

    code: str
    severity: str
    said: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    limits: dict[str, Any] = field(default_factory=dict[str, Any])
    better: dict[str, Any] = field(default_factory=dict[str, Any])
    kinder: dict[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        return self.code


KEY = {"idempotency_key": "{order}"}
IN_LINE = {"on_contention": hand_off()}
WAITS = {"on_contention": wait(10)}
HELD = "a job may run for 600 s (max_hold) and the visibility timeout is 600 s"
ROWS = [
    Row(
        "max-hold-beyond-visibility", "warning", (HELD, "below 600 s", "above 600 s"),
        limits={"visibility": 600}, kinder={"visibility": 600.1},
    ),
    Row(
        "max-hold-beyond-visibility", "warning", ("(max_hold)", "600 s (assumed)"),
        limits={"visibility": 600, "visibility_read": False},
        kinder={"extended": True, "extended_waiting": True},
    ),
    Row(
        "max-hold-beyond-visibility", "warning", ("610 s (a wait of 10 s and max_hold)",),
        WAITS, {"visibility": 610}, kinder={"visibility": 611},
    ),
    Row(
        "max-hold-beyond-visibility", "warning", ("3600 s (the default max_hold)",),
        {"max_hold": None}, {"visibility": 3600}, better={"max_hold": 3599},
    ),
    Row(
        "max-hold-beyond-ack-timeout", "warning", ("600 s", "is 500 s (assumed)", "below 500 s"),
        limits={"ack_timeout": 500}, better={"max_hold": 499},
    ),
    Row(
        "max-hold-beyond-ack-timeout", "warning", ("600 s", "is 600 s. Why", "cuts the worker off"),
        limits={"ack_timeout": 600, "ack_timeout_read": True}, kinder={"ack_timeout": 601},
    ),
    Row(
        "prefetch-beyond-visibility", "warning",
        ("the prefetch is 4", "600 s", "is 2400 s", "below 600 s"),
        limits={"visibility": 2400, "prefetch": 4}, kinder={"visibility": 2401},
    ),
    Row(
        "prefetch-beyond-visibility", "warning", ("the prefetch is 4",),
        limits={"visibility": 2400, "prefetch": 4}, kinder={"extended_waiting": True},
    ),
    Row(
        "prefetch-beyond-ack-timeout", "warning", ("the prefetch is unlimited", "is 1800 s"),
        limits={"ack_timeout": 1800, "prefetch": 0}, kinder={"prefetch": 2},
    ),
    Row(
        "prefetch-beyond-ack-timeout", "warning",
        ("the prefetch is 1", "Fix: max_hold below 600 s"),
        {"on_contention": skip()}, {"ack_timeout": 600, "late_ack": False},
        better={"max_hold": 599},
    ),
    Row(
        "delay-beyond-visibility", "error", ("a delay of 3600 s", "is 3600 s", "below 3600 s"),
        limits={"visibility": 3600, "longest_delay": 3600.0}, kinder={"longest_delay": 3599.0},
    ),
    Row(
        "delay-beyond-visibility", "warning", ("(assumed)",),
        limits={"visibility": 3600, "visibility_read": False, "longest_delay": 3600.0},
        kinder={"extended_waiting": True},
    ),
    Row(
        "delay-beyond-ack-timeout", "warning", ("a delay of 1800 s", "is 1800 s (assumed)"),
        limits={"ack_timeout": 1800, "longest_delay": 1800.0}, kinder={"ack_timeout": 1801},
    ),
    Row(
        "retain-within-visibility", "error", ("retain=3600 s", "at least 7200 s", "twice"),
        {**KEY, "retain": 3600}, {"visibility": 3600}, better={"retain": 3601},
    ),
    Row(
        "retain-within-visibility", "warning", ("retain=3600 s",),
        {**KEY, "retain": 3600}, {"visibility": 3600, "visibility_read": False},
        kinder={"late_ack": False, "crash": "redeliver"},
    ),
    Row(
        "max-hold-beyond-hard-limit", "warning", ("max_hold=600 s", "is 600 s", "ttl=30 s"),
        limits={"hard_limit": 600}, kinder={"hard_limit": 601},
    ),
    Row(
        "max-hold-beyond-hard-limit", "warning", ("max_hold=30 s", "is 30 s", "above 30 s"),
        {"max_hold": None}, {"hard_limit": 30}, better={"ttl": 20},
    ),
    Row(
        "max-hold-beyond-hard-limit", "warning", ("wait=10 s, max_hold=595 s", "above 605 s"),
        {**WAITS, "max_hold": None}, {"hard_limit": 600}, better={"max_hold": 589},
    ),
    Row(
        "wait-beyond-limit", "warning", ("wait=10 s", "the soft time limit is 10 s"),
        WAITS, {"soft_limit": 10}, kinder={"soft_limit": 11},
    ),
    Row(
        "soft-limit-beyond-hard-limit", "error", ("soft time limit is 700 s", "below 700 s"),
        limits={"soft_limit": 700, "hard_limit": 700}, kinder={"soft_limit": 699},
    ),
    Row(
        "limits-ignored", "warning", ("the hard time limit is 700 s", "ends, after 600 s"),
        limits={"hard_limit": 700, "hard_enforced": False}, kinder={"hard_enforced": True},
    ),
    Row(
        "limits-ignored", "warning", ("the soft time limit is 650 s", "not asked to stop"),
        limits={"hard_limit": 700, "soft_limit": 650, "soft_enforced": False},
        kinder={"soft_enforced": True},
    ),
    Row(
        "timeout-comes-back", "warning", ("is 700 s", "for ever", "below 700 s"),
        {"on_lost": "flag"}, {"hard_limit": 700, "returned": True}, better={"on_lost": "interrupt"},
    ),
    Row(
        "timeout-comes-back", "warning", ("is 700 s", "counts attempts"),
        {"on_lost": "flag"}, {"hard_limit": 700, "returned": True}, better=KEY,
    ),
    Row(
        "crash-loses-job", "warning", ("hands it out", "at most once"),
        limits={"crash": "lost"}, better={"on_contention": fail()},
    ),
    Row(
        "crash-loses-job", "warning", ("hands it out", "late acknowledgement"),
        {**KEY, "on_contention": skip()}, {"crash": "lost"}, kinder={"crash": "redeliver"},
    ),
    Row(
        "crash-loses-job", "warning", ("hands it out", "at most once"),
        {"on_contention": coalesce()}, {"crash": "lost"}, kinder={"crash": "redeliver"},
    ),
    Row(
        "parked-not-durable", "error", ("appendonly no", "appendonly yes", "durable=False"),
        IN_LINE, {"appends": False}, {"on_contention": hand_off(durable=False)},
    ),
    Row(
        "parked-not-durable", "error", ("appendonly no",),
        {"on_contention": coalesce()}, {"appends": False}, kinder={"appends": None},
    ),
    Row(
        "crash-fails-job", "warning", ("as failed", "does not run again"),
        {"on_contention": skip()}, {"crash": "fail"}, kinder={"crash": "redeliver"},
    ),
    Row(
        "wait-blocks-worker", "warning", ("wait=10 s", "1 slot"),
        WAITS, {"concurrency": 1}, kinder={"concurrency": 2},
    ),
    Row(
        "wait-blocks-worker", "warning", ("wait=10 s",),
        WAITS, {"concurrency": 1}, better={"on_contention": requeue()},
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_rule_fires_alone_and_says_why_in_numbers(row: Row) -> None:
    (finding,) = found({**row.options}, {**row.limits})
    assert (finding.code, finding.severity, finding.subject) == (row.code, row.severity, "refund")
    for words in row.said:
        assert words in finding.text


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_rule_does_not_fire_a_step_back_from_it(row: Row) -> None:
    assert row.better or row.kinder
    assert found({**row.options, **row.better}, {**row.limits, **row.kinder}) == []


def test_a_ttl_beyond_visibility_is_told_beside_the_max_hold_that_is_no_shorter() -> None:
    codes = [f.code for f in found({"ttl": 60}, {"visibility": 60})]
    assert codes == ["ttl-beyond-visibility", "max-hold-beyond-visibility"]
    codes = [f.code for f in found({"ttl": 59}, {"visibility": 60})]
    assert codes == ["max-hold-beyond-visibility"]
    assert found({"ttl": 60}, {"visibility": 60, "extended": True, "extended_waiting": True}) == []


def test_a_hard_limit_ends_what_max_hold_would_not() -> None:
    (finding,) = found({"max_hold": 3000}, {"visibility": 2000, "hard_limit": 1500})
    assert finding.code == "max-hold-beyond-hard-limit"
    codes = [f.code for f in found({"max_hold": 3000}, {"visibility": 1500, "hard_limit": 1500})]
    assert codes == ["max-hold-beyond-visibility", "max-hold-beyond-hard-limit"]
    ignored = {"visibility": 2000, "hard_limit": 1500, "hard_enforced": False}
    codes = [f.code for f in found({"max_hold": 3000}, ignored)]
    assert codes == ["max-hold-beyond-visibility", "limits-ignored"]


def test_a_wait_beyond_the_hard_limit_is_told_by_the_lower_of_the_limits() -> None:
    findings = found({**WAITS}, {"soft_limit": 8, "hard_limit": 9})
    assert [f.code for f in findings] == ["max-hold-beyond-hard-limit", "wait-beyond-limit"]
    assert "the soft time limit is 8 s" in findings[1].what
    findings = found({**WAITS}, {"soft_limit": 8, "hard_limit": 9, "soft_enforced": False})
    assert "the hard time limit is 9 s" in findings[1].what


def test_defaults_fit_a_queue_that_redelivers_after_an_hour_and_a_day_of_records() -> None:
    assert found({**KEY}, {"visibility": 3600}) == []


def test_alike_findings_are_told_once_with_errors_first() -> None:
    limits = {"visibility": 3600, "longest_delay": 3600.0, "crash": "fail"}
    findings = [
        finding
        for number in range(200)
        for finding in found({}, {**limits, "subject": f"job-{number:03}"})
    ]
    (error, names), (warning, same) = grouped(findings)
    assert (error.code, warning.code) == ("delay-beyond-visibility", "crash-fails-job")
    assert names == same == "job-000, job-001, job-002 and 197 more, 200 in all"


def test_other_numbers_are_another_finding() -> None:
    one = found({"max_hold": 700}, {"visibility": 600, "subject": "a"})
    other = found({"max_hold": 800}, {"visibility": 600, "subject": "b"})
    assert [names for _, names in grouped(one + other)] == ["a", "b"]


def test_a_hard_limit_longer_than_any_lease_is_no_max_hold() -> None:
    month = 30 * 86_400.0
    assert guard(max_hold=None).options.timeouts(month, month).max_hold == MAX_HOLD_MAX
