"""Who may publish a parked task: a process of the same application, at the same broker."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery

from giliran.adapters.celery import CeleryQueue


def route(name: str | None, broker: str | list[str]) -> str:
    app: Any = Celery(name, set_as_current=False)
    queue = CeleryQueue(app)
    app.conf.broker_url = broker  # Settings may come after the queue was made.
    return queue.route


HERE = "redis://broker:6379/0"


@pytest.mark.parametrize(
    "broker",
    [
        "redis://broker:6379/1",
        "redis://broker:6380/0",
        "redis://other:6379/0",
        "amqp://broker:6379/0",
        [HERE, "redis://other:6379/0"],
    ],
)
def test_another_broker_is_another_route(broker: str | list[str]) -> None:
    assert route("shop", broker) != route("shop", HERE)


def test_another_application_is_another_route() -> None:
    assert len({route(name, HERE) for name in ("shop", "books", None)}) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (HERE, HERE),
        (HERE, "redis://user:secret@broker:6379/0"),
        (f"{HERE};redis://b:1/0", f"redis://b:1/0;{HERE}"),
        (f"{HERE};redis://b:1/0", [HERE, "redis://b:1/0"]),
    ],
)
def test_one_broker_is_one_route(one: str, other: str | list[str]) -> None:
    assert route("shop", one) == route("shop", other)
    assert "secret" not in route("shop", other)
