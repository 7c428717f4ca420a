from __future__ import annotations

from typing import Any

import pytest
from tests.programs.play import (
    HELD,
    TOKEN,
    always,
    busy,
    misconfigured,
    unreachable,
)  # fmt: skip
from tests.programs.stage import Declined, Delivered, Stage, put_back, raised

from giliran.errors import (
    Contended,
    GaveUp,
    InDoubt,
    KeyReused,
    ResultNotKept,
    Skipped,
    StoreUnavailable,
)  # fmt: skip
from giliran.jobs import Carried
from giliran.lease import Lease
from giliran.policies import Policy, fail, requeue, skip, wait
from giliran.verdicts import Return, Run

ALL_POLICIES = [requeue(), wait(1), wait(1, then="skip"), skip(), fail()]


def test_held_runs() -> None:
    stage = Stage()
    verdict = stage.open(HELD)
    assert isinstance(verdict, Run)
    assert isinstance(verdict.lease, Lease)
    assert (verdict.lease.fence, verdict.lease.token, stage.names) == (7, TOKEN, ["lock.acquired"])


def test_done_is_replayed() -> None:
    stage = Stage()
    assert stage.open([1, "done", "done", "5", 1]) == Return(5)
    assert stage.names == ["job.replayed"]


def test_a_failure_is_replayed_if_its_class_is_listed() -> None:
    text = f'{{"class":"{Declined.__module__}.Declined","args":["no"],"state":{{}}}}'
    error = raised(Stage().open([1, "done", "failed", text, 1]))
    assert isinstance(error, Declined)
    other = text.replace("Declined", "Other")
    assert isinstance(raised(Stage().open([1, "done", "failed", other, 1])), ResultNotKept)


@pytest.mark.parametrize("kept", ["", '"text"', "{"])
def test_a_result_that_was_not_kept_or_does_not_fit_is_told(kept: str) -> None:
    assert isinstance(raised(Stage().open([1, "done", "done", kept, 1])), ResultNotKept)


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        (["mismatch"], KeyReused, "job.refused"),
        (["in_doubt", 2], InDoubt, "job.refused"),
        (["gave_up", 6], GaveUp, "job.gave_up"),
    ],
)
def test_a_record_can_forbid_to_run(answer: list[Any], error: type, told: str) -> None:
    stage = Stage()
    assert isinstance(raised(stage.open([1, *answer])), error)
    assert stage.names == [told]


@pytest.mark.parametrize("policy", ALL_POLICIES)
@pytest.mark.parametrize("luck", [0.0, 1.0])
def test_a_copy_of_the_running_delivery_is_put_back_as_it_was(policy: Policy, luck: float) -> None:
    carried = Carried(3, 1, 2, 1)
    stage = Stage(policy=policy, luck=luck, job=Delivered(carried))
    back = put_back(stage.run(stage.attempt().open(5.0), always(lambda: busy(20_000, "duplicate"))))
    assert 20.0 <= back.delay <= 25.0
    assert back.carried == carried
    assert stage.names == ["lock.duplicate"]


def test_a_copy_is_not_held_back_for_longer_than_the_queue_bears() -> None:
    stage = Stage(job=Delivered(visibility=30.0))
    assert put_back(stage.open(busy(20_000, "duplicate"))).delay == 10.0


@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_a_retry_waits_for_its_elder_whatever_the_policy(policy: Policy) -> None:
    """The framework publishes it from within the body; skipping it would lose the job."""
    stage = Stage(policy=policy, job=Delivered())
    back = put_back(stage.run(stage.attempt().open(5.0), always(lambda: busy(20_000, "elder"))))
    assert back.carried == Carried()
    assert back.delay <= 1.25


def test_requeue_counts_and_remembers_when_it_began() -> None:
    stage = Stage(policy=requeue())
    back = put_back(stage.open(busy(server_ms=5_000)))
    assert back.carried == Carried(1, 5_000)
    stage.job = Delivered(back.carried)
    assert put_back(stage.open(busy(server_ms=9_000))).carried == Carried(2, 5_000)


@pytest.mark.parametrize("n", range(12))
@pytest.mark.parametrize("visibility", [None, 30.0])
def test_requeue_delays_are_jittered_grow_and_stay_in_bounds(
    n: int, visibility: float | None
) -> None:
    delays: list[float] = []
    for luck in (0.0, 0.25, 0.5, 1.0):
        job = Delivered(Carried(n, 1_000_000), visibility)
        stage = Stage(policy=requeue(base=1, cap=60), luck=luck, job=job)
        delays.append(put_back(stage.open(busy())).delay)
    ceiling = min(2.0**n, 60.0, (visibility or 999.0) / 3)
    assert delays == sorted(delays)
    assert delays[-1] == ceiling
    assert delays[2] == ceiling / 2
    assert 0.2 < delays[0] <= 0.25


def test_requeue_never_comes_after_its_end_and_gives_up_there() -> None:
    policy = requeue(base=10, cap=10, give_up_after=60)
    stage = Stage(policy=policy, job=Delivered(Carried(5, 1_000_000)))
    assert put_back(stage.open(busy(server_ms=1_058_000))).delay == 2.0
    error = raised(stage.open(busy(server_ms=1_060_000)))
    assert isinstance(error, GaveUp)
    assert error.reason == "contention"
    assert stage.names[-1] == "job.gave_up"


def test_requeue_may_end_by_skipping() -> None:
    policy = requeue(give_up_after=60, then="skip")
    stage = Stage(policy=policy, job=Delivered(Carried(5, 1_000)))
    assert stage.open(busy(server_ms=90_000)) == Return(None)


@pytest.mark.parametrize(
    ("policy", "expected"), [(skip(), None), (skip(returns=3), 3), (wait(0.01, then="skip"), None)]
)
def test_skip_returns(policy: Policy, expected: object) -> None:
    stage = Stage(policy=policy)
    assert stage.run(stage.attempt().open(5.0), always(busy)) == Return(expected)
    assert stage.names == ["lock.contended", "job.skipped"]


def test_skip_raises_on_a_plain_call() -> None:
    assert isinstance(raised(Stage(policy=skip(), job=None).open(busy())), Skipped)


@pytest.mark.parametrize("policy", [fail(), wait(0.01)])
def test_fail_raises_contended(policy: Policy) -> None:
    stage = Stage(policy=policy)
    error = raised(stage.run(stage.attempt().open(5.0), always(busy)))
    assert isinstance(error, Contended)
    assert (error.holder, error.remaining) == ("t j2 on h:1", 10.0)


def test_requeue_without_a_queue_raises_contended() -> None:
    assert isinstance(raised(Stage(policy=requeue(), job=None).open(busy(-1))), Contended)


# ---------------------------------------------------------------------- outages


def test_an_outage_puts_the_job_back_and_counts() -> None:
    for outages in (0, 3, 10):
        stage = Stage(job=Delivered(Carried(outages=outages)))
        back = put_back(stage.open(misconfigured()))
        assert back.delay == min(60.0, 2.0**outages)
        assert back.carried == Carried(outages=outages + 1)


def test_an_outage_that_lasts_fails_the_job() -> None:
    stage = Stage(job=Delivered(Carried(outages=20)))
    assert isinstance(raised(stage.open(misconfigured())), StoreUnavailable)
    assert stage.names[-1] == "job.failed"


def test_an_outage_is_told_to_a_plain_caller() -> None:
    assert isinstance(raised(Stage(job=None).open(misconfigured())), StoreUnavailable)


@pytest.mark.parametrize(("error", "owed"), [(unreachable, "forget"), (misconfigured, None)])
def test_a_claim_that_may_be_ours_is_owed_back(error: Any, owed: str | None) -> None:
    stage = Stage()
    attempt = stage.attempt()
    stage.run(attempt.open(5.0), always(error))
    assert attempt.owed == owed
