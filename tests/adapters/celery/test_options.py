"""Options of tasks and of calls do beside a guard what they do without one."""

from __future__ import annotations

import json
from typing import Any

import celery
import pytest
from celery.app import task as celery_task
from tests.adapters.celery import features, tasks
from tests.adapters.celery.rig import GIVE_UP, Rig, failure, outcome, state
from tests.support.wait import wait_for


def put_back_once(rig: Rig, order: str) -> None:
    """Check that a task was contended, each time counted, and ran once without a retry."""
    (begin,) = rig.wait_lines(order, "begin")
    assert begin["contentions"] == rig.told("job.requeued", order) > 0
    assert begin["retries"] == begin["recoveries"] == begin["outages"] == 0
    rig.wait_lines(order, "end")
    wait_for(lambda: rig.told("job.ran", order) == 1, GIVE_UP)


@pytest.mark.parametrize("by_call", [False, True], ids=["by task", "by call"])
def test_an_ignored_result_is_ignored_after_a_put_back_too(
    rig: Rig, order: str, *, by_call: bool
) -> None:
    rig.hold(order, 0.3)
    link = tasks.note.si(order, "linked")
    work, options = (tasks.early, {"ignore_result": True}) if by_call else (features.quiet, {})
    result = work.apply_async((order,), link=link, **options)
    rig.wait_lines(order, "linked")
    put_back_once(rig, order)
    assert tasks.app.AsyncResult(result.id).state == "PENDING"


@pytest.mark.skipif(
    not hasattr(celery_task, "get_actual_ignore_result"),
    reason="in this Celery the task's option wins",
)
def test_a_result_that_a_call_wants_is_kept_after_a_put_back_too(rig: Rig, order: str) -> None:
    rig.hold(order, 0.3)
    result = features.quiet.apply_async((order,), ignore_result=False)
    rig.wait_lines(order, "end")
    put_back_once(rig, order)
    assert outcome(tasks.app.AsyncResult(result.id)) == {"order": order, "run": 1}


def test_a_countdown_is_kept_and_then_contention_adds_to_it(rig: Rig, order: str) -> None:
    rig.hold(order, 0.7)
    assert outcome(tasks.early.apply_async((order,), countdown=0.3)) == {"order": order, "run": 1}
    put_back_once(rig, order)


def test_a_task_that_expired_before_it_was_put_back_runs_no_more(rig: Rig, order: str) -> None:
    rig.hold(order, 30)
    result = tasks.early.apply_async((order,), expires=0.4)
    assert state(result) == "REVOKED"
    rig.release(order)
    assert rig.told("job.requeued", order) > 0
    assert not rig.lines(order)


def test_a_tracked_task_ends_as_usual(rig: Rig, order: str) -> None:
    """While it waits its state goes on to say that it was started."""
    rig.hold(order, 30)
    result = features.tracked.delay(order)
    wait_for(lambda: rig.told("job.requeued", order), GIVE_UP)
    assert result.state == "STARTED"
    rig.release(order)
    assert outcome(result) == {"order": order, "run": 1}
    put_back_once(rig, order)


def test_arguments_that_do_not_fit_fail_the_task(rig: Rig, order: str) -> None:
    """`typing=False` lets them pass at publish."""
    line = failure(features.untyped.delay(order, nonsense=1))
    assert "nonsense" in line
    assert not rig.lines(order)


def test_a_shared_task_is_guarded(rig: Rig, order: str) -> None:
    rig.hold(order, 0.3)
    assert outcome(tasks.app.tasks["shared"].delay(order)) == {"order": order, "run": 1}
    put_back_once(rig, order)


def test_a_task_sent_by_name_is_guarded(rig: Rig, order: str) -> None:
    rig.hold(order, 0.3)
    result = tasks.app.send_task("late", (order,), {"first": "nap 0.01"}, queue="celery")
    assert outcome(result) == {"order": order, "run": 1}
    put_back_once(rig, order)


@pytest.mark.skipif(celery.VERSION < (5, 5), reason="this Celery knows no pydantic")
def test_a_task_that_takes_a_model_gets_it_after_a_put_back_too(rig: Rig, order: str) -> None:
    rig.hold(order, 0.3)
    result = features.priced.delay(order, {"name": "tea", "amount": 2})
    assert outcome(result) == {"order": order, "run": 1, "item": "tea"}
    put_back_once(rig, order)


def test_a_result_is_replayed_whatever_the_serialiser_of_its_message(rig: Rig, order: str) -> None:
    message = rig.captured(features.picklish, order, link=tasks.note.si(order, "linked"))
    assert message["content-type"] == "application/x-picklish"
    for times in (1, 2):
        rig.deliver(message)
        rig.wait_lines(order, "linked", times)
    assert rig.told("job.replayed", order) == len(rig.lines(order, "begin")) == 1
    result = tasks.app.AsyncResult(message["headers"]["id"])
    assert outcome(result) == {"order": order, "run": 1}


@pytest.mark.parametrize("kind", features.BACKENDS)
def test_every_result_backend_gets_the_end_of_a_task(rig: Rig, order: str, kind: str) -> None:
    """Run after a put-back, replayed, and given up; two of them tell nobody else."""
    work = features.BACKENDS[kind]
    rig.hold(order, 0.3)
    result = work.apply_async((order,), link=tasks.note.si(order, "linked"))
    rig.wait_lines(order, "linked")
    put_back_once(rig, order)
    copy = rig.captured(work, f"{order}-copied", link=tasks.note.si(order, "linked"))
    for times in (2, 3):
        rig.deliver(json.loads(json.dumps(copy)))
        rig.wait_lines(order, "linked", times)
    assert rig.told("job.replayed", order) == 1
    failed = work.apply_async((order, "", "raise value"), link_error=tasks.note.si(order, "failed"))
    rig.wait_lines(order, "failed")
    if kind in ("file", "rpc"):
        assert result.get(timeout=GIVE_UP) == {"order": order, "run": 1}
        with pytest.raises(ValueError, match="said so"):
            failed.get(timeout=GIVE_UP)


def test_a_periodic_task_with_a_fixed_id_runs_each_time(rig: Rig, order: str, task: Any) -> None:
    """As beat sends it: the same id and arguments, also while the one before is put back."""
    for _ in range(2):
        task.apply_async((order,), task_id=f"tick-{order}")
    rig.wait_lines(order, "end", 2)
    wait_for(lambda: not rig.held(order), GIVE_UP)
    rig.hold(order, 0.3)
    for _ in range(2):
        task.apply_async((order,), task_id=f"tick-{order}")
    rig.wait_lines(order, "end", 4)
    begins = rig.lines(order, "begin")
    assert len({line["publication"] for line in begins}) == 4
    assert {line["task_id"] for line in begins} == {f"tick-{order}"}
    assert rig.told("job.replayed", order) == 0
    assert sum(line["contentions"] for line in begins) == rig.told("job.requeued", order)
