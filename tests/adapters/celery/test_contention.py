"""A contended task goes back to the broker as it was, and spends no retry."""

from __future__ import annotations

from typing import Any

import pytest
from celery.app.task import Context
from tests.adapters.celery import tasks
from tests.adapters.celery.rig import Rig, outcome, state

from giliran.adapters.celery.headers import PUBLICATION


def test_contended_tasks_all_run_once_one_after_the_other(rig: Rig, order: str, task: Any) -> None:
    results = [task.delay(order, "nap 0.1", "nap 0.1") for _ in range(6)]
    assert [state(result) for result in results] == ["SUCCESS"] * 6
    lines = rig.lines(order)
    assert [line["what"] for line in lines] == ["begin", "end"] * 6
    begins = rig.lines(order, "begin")
    assert {line["task_id"] for line in begins} == {result.id for result in results}
    assert [line["retries"] for line in begins] == [0] * 6
    fences = [line["fence"] for line in begins]
    assert fences == sorted(set(fences))
    assert sum(line["contentions"] for line in begins) > 0


def test_tasks_of_several_resources_run_one_after_the_other_and_spend_no_retry(
    rig: Rig, order: str
) -> None:
    """All need one wallet; the order of two of them is held by another task at first."""
    other = f"{order}-2"
    rig.hold(order, 0.5)
    wanted = [order, other, order, other]
    results = [tasks.both.delay(each, f"w-{order}", "nap 0.1") for each in wanted]
    assert [state(result) for result in results] == ["SUCCESS"] * 4
    lines = sorted([*rig.lines(order), *rig.lines(other)], key=lambda line: line["at"])
    assert [line["what"] for line in lines] == ["begin", "end"] * 4
    assert [line["retries"] for line in lines if line["what"] == "begin"] == [0] * 4
    assert sum(line.get("contentions", 0) for line in lines) > 0


def test_a_task_put_back_keeps_everything_it_was_sent_with(rig: Rig, order: str, task: Any) -> None:
    rig.hold(order, 0.7)
    result = task.apply_async(
        (order,), task_id=f"id-{order}", priority=3, expires=60, headers={"tenant": "blue"},
        link=tasks.note.si(order, "linked"), link_error=tasks.note.si(order, "failed"),
    )  # fmt: skip
    assert outcome(result) == {"order": order, "run": 1}
    (begin,) = rig.lines(order, "begin")
    assert begin["contentions"] > 0
    assert begin["task_id"] == f"id-{order}"
    assert (begin["retries"], begin["priority"]) == (0, 3)
    assert "tenant" in begin["headers"]
    assert begin["expires"]
    rig.wait_lines(order, "linked")
    assert not rig.lines(order, "failed")


@pytest.mark.skipif(
    not hasattr(Context, "_filter_x_death_headers"), reason="this Celery keeps them in retries too"
)
def test_a_task_put_back_is_rid_of_headers_that_rabbitmq_takes_for_a_cycle(
    rig: Rig, order: str
) -> None:
    rig.hold(order, 0.5)
    outcome(tasks.early.apply_async((order,), headers={"x-death": "once", "tenant": "blue"}))
    (begin,) = rig.lines(order, "begin")
    assert begin["contentions"] > 0
    assert "x-death" not in begin["headers"]


def test_link_error_is_called_when_a_task_fails_that_was_put_back(
    rig: Rig, order: str, task: Any
) -> None:
    rig.hold(order, 0.5)
    result = task.apply_async((order, "raise value"), link_error=tasks.note.si(order, "failed"))
    assert state(result) == "FAILURE"
    rig.wait_lines(order, "failed")


def test_a_task_that_expires_while_it_is_put_back_does_not_run(rig: Rig, order: str) -> None:
    rig.hold(order, 2)
    result = tasks.early.apply_async((order,), expires=0.7)
    assert state(result) == "REVOKED"
    assert not rig.lines(order)


def test_being_put_back_keeps_the_publication_and_a_retry_renews_it(
    rig: Rig, order: str, task: Any
) -> None:
    message = rig.captured(task, order, "retry")
    rig.hold(order, 0.5)
    rig.deliver(message)
    assert outcome(tasks.app.AsyncResult(message["headers"]["id"])) == {"order": order, "run": 2}
    first, second = rig.lines(order, "begin")
    assert first["contentions"] > 0
    assert first["publication"] == message["headers"][PUBLICATION]
    assert second["publication"] not in (None, first["publication"])
    assert (second["contentions"], second["retries"]) == (0, 1)
