from __future__ import annotations

import pytest
from tests.programs.play import (
    DONE,
    RELEASED,
    always,
    lost,
    refused,
    unreachable,
)  # fmt: skip
from tests.programs.stage import Control, Declined, Delivered, LimitError, Stage, put_back, raised

from giliran.errors import (
    GaveUp,
    LeaseInterrupt,
    LeaseLost,
)  # fmt: skip
from giliran.jobs import Carried
from giliran.store import Memory
from giliran.timeouts import Timeouts
from giliran.verdicts import Raised, Return, Returned


def test_a_result_is_recorded() -> None:
    stage = Stage()
    assert stage.close(Returned(5), DONE) == Return(5)
    assert stage.calls[0][2][2:5] == ("done", "f", "5")
    assert stage.names == ["lock.released", "job.ran"]


def test_a_result_that_cannot_be_kept_does_not_fail_the_job() -> None:
    stage = Stage()
    assert stage.close(Returned("x"), DONE) == Return("x")
    assert stage.calls[0][2][2:5] == ("done", "f", "")
    assert stage.names[0] == "record.not_kept"


def test_without_a_record_it_is_a_mere_release() -> None:
    stage = Stage(memory=Memory())
    assert stage.close(Returned(5), DONE) == Return(5)
    assert stage.calls[0][2][2] == "release"


@pytest.mark.parametrize(
    ("error", "ending", "told"),
    [
        (ValueError("x"), "forget", ["job.failed"]),
        (Declined("no"), "failed", ["job.failed"]),
        (Control(), "forget", []),
        (LimitError(), "release", ["job.crashed"]),
        (KeyboardInterrupt(), "release", ["job.crashed"]),
    ],
)
def test_the_bodys_own_exception_wins(error: BaseException, ending: str, told: list[str]) -> None:
    stage = Stage()
    assert raised(stage.close(Raised(error), DONE)) is error
    assert stage.calls[0][2][2] == ending
    assert stage.names == ["lock.released", *told]
    assert raised(stage.close(Raised(error), lost("taken"))) is error
    assert raised(stage.close(Raised(error), late=40.0)) is error


def test_a_lost_lease_puts_the_job_back_and_counts() -> None:
    for outcome in (Returned(5), Raised(LeaseInterrupt("K"))):
        stage = Stage(job=Delivered(Carried(2, 3, 4, 5)))
        back = put_back(stage.close(outcome, late=40.0))
        assert 0.5 <= back.delay <= 1.0
        assert back.carried == Carried(2, 3, 5, 5)
        assert stage.names == ["lock.lost", "job.requeued"]


def test_as_many_recoveries_as_allowed() -> None:
    stage = Stage(job=Delivered(Carried(recoveries=5)))
    error = raised(stage.close(Returned(5), lost("taken")))
    assert isinstance(error, GaveUp)
    assert error.reason == "recoveries"


def test_max_hold_takes_the_failure_path() -> None:
    stage = Stage(times=Timeouts(30, 30, 3600))
    error = raised(stage.close(Returned(5), late=40.0))
    assert isinstance(error, LeaseLost)
    assert error.reason == "max_hold"


def test_a_lost_lease_is_told_to_a_plain_caller() -> None:
    assert isinstance(raised(Stage(job=None).close(Returned(5), lost("expired"))), LeaseLost)


@pytest.mark.parametrize("ending", [ValueError(), LimitError()])
def test_a_release_that_gave_up_is_owed(ending: Exception) -> None:
    stage = Stage()
    attempt = stage.attempt()
    stage.run(attempt.close(stage.lease(), Raised(ending)), always(unreachable))
    assert attempt.owed == ("forget" if isinstance(ending, ValueError) else "release")


def test_a_release_that_was_answered_owes_nothing() -> None:
    stage = Stage()
    attempt = stage.attempt()
    stage.run(attempt.close(stage.lease(), Raised(ValueError())), [refused("LOADING"), RELEASED])
    assert attempt.owed is None


def test_an_unrecorded_effect_is_a_success_that_is_told() -> None:
    stage = Stage()
    assert stage.close(Returned(5), refused("OOM"), DONE) == Return(5)
    assert stage.names == ["record.unrecorded", "lock.released", "job.ran"]
