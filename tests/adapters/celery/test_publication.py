"""A message that comes twice has one effect; two messages have two, whatever their task id."""

from __future__ import annotations

from typing import Any

from tests.adapters.celery import tasks
from tests.adapters.celery.rig import GIVE_UP, Rig, failure, outcome
from tests.support.wait import wait_for

from giliran.adapters.celery.headers import PUBLICATION


def test_two_sends_with_one_task_id_are_two_publications(rig: Rig, order: str, task: Any) -> None:
    for run in (1, 2):
        task.apply_async((order,), task_id=f"fixed-{order}")
        rig.wait_lines(order, "end", run)
    one, two = rig.lines(order, "begin")
    assert one["task_id"] == two["task_id"]
    assert one["publication"] != two["publication"]


def test_a_message_without_stamp_runs_and_is_recognised_when_it_comes_again(
    rig: Rig, order: str
) -> None:
    message = rig.captured(tasks.early, order)
    del message["headers"][PUBLICATION]
    rig.hold(order, 0.5)
    rig.deliver(message)
    (begin,) = rig.wait_lines(order, "begin")
    assert begin["contentions"] > 0
    assert begin["publication"].startswith(f"celery:giliran-tests:celery:{begin['task_id']}:0:")
    rig.wait_lines(order, "end")
    rig.deliver(message)
    wait_for(lambda: rig.told("job.replayed", order), GIVE_UP)
    assert len(rig.lines(order, "begin")) == 1


def test_a_copy_of_the_running_message_is_put_back_until_that_ends(
    rig: Rig, order: str, task: Any
) -> None:
    message = rig.captured(task, order, "gate", link=tasks.note.si(order, "linked"))
    rig.deliver(message)
    rig.wait_lines(order, "begin")
    rig.deliver(message)
    wait_for(lambda: rig.told("lock.duplicate", order), GIVE_UP)
    rig.open_gate(order)
    rig.wait_lines(order, "linked", 2)  # Both end, so that what follows goes on.
    assert len(rig.lines(order, "begin")) == len(rig.lines(order, "end")) == 1
    result = tasks.app.AsyncResult(message["headers"]["id"])
    assert (result.state, result.result) == ("SUCCESS", {"order": order, "run": 1})


def test_a_copy_of_the_running_message_is_never_skipped(rig: Rig, order: str) -> None:
    message = rig.captured(tasks.skips, order, "gate", link=tasks.note.si(order, "linked"))
    rig.deliver(message)
    rig.wait_lines(order, "begin")
    rig.deliver(message)
    wait_for(lambda: rig.told("lock.duplicate", order), GIVE_UP)
    assert not rig.lines(order, "linked")
    rig.open_gate(order)
    rig.wait_lines(order, "linked", 2)
    result = tasks.app.AsyncResult(message["headers"]["id"])
    assert result.result == {"order": order, "run": 1}


def test_a_copy_of_a_finished_message_returns_its_result(rig: Rig, order: str, task: Any) -> None:
    message = rig.captured(task, order, link=tasks.note.si(order, "linked"))
    rig.deliver(message)
    rig.wait_lines(order, "linked")
    rig.deliver(message)
    rig.wait_lines(order, "linked", 2)
    assert len(rig.lines(order, "begin")) == 1
    result = tasks.app.AsyncResult(message["headers"]["id"])
    assert (result.state, result.result) == ("SUCCESS", {"order": order, "run": 1})


def test_a_second_request_with_one_idempotency_key_is_answered_from_the_record(
    rig: Rig, order: str
) -> None:
    results = [outcome(tasks.refund.delay(order, f"r-{order}", 5)) for _ in range(2)]
    assert results == [{"refunded": 5}] * 2
    assert len(rig.lines(order, "begin")) == 1


def test_an_idempotency_key_with_other_arguments_fails_the_task(rig: Rig, order: str) -> None:
    outcome(tasks.refund.delay(order, f"r-{order}", 5))
    other = tasks.refund.delay(order, f"r-{order}", 6)
    assert failure(other).startswith("idempotency key ")
    assert len(rig.lines(order, "begin")) == 1
