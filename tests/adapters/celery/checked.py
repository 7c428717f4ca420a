"""An application as its environment says: settings, guards and tasks, for workers that check them.

`CHECKED` is JSON: `conf` for Celery, `queue` for `CeleryQueue`, and `tasks`, each with a `name` and
options for the `task` and its `guard`. Redis is asked only about tasks with `hand_off`.
"""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any

from celery import Celery

from giliran import Giliran, hand_off, requeue, wait
from giliran.adapters.celery import CeleryQueue
from giliran.policies import Policy

plan: dict[str, Any] = json.loads(os.environ["CHECKED"])

app: Any = Celery("checked", broker=os.environ["CHECKED_BROKER"])
app.conf.update(broker_connection_retry_on_startup=True, **plan["conf"])
turns = Giliran(os.environ["CHECKED_STORE"], queues=[CeleryQueue(app, **plan["queue"])])


def make(name: str, task: dict[str, Any], guard: dict[str, Any]) -> None:
    """Make one guarded task that does nothing."""
    policy: Policy = wait(guard.pop("wait")) if "wait" in guard else requeue()
    if "hand_off" in guard:
        policy = hand_off(**guard.pop("hand_off"))
    guarded: Any = turns.exclusive("lock:{order}", on_contention=policy, **guard)

    def work(order: str) -> None:
        del order

    if "autoretry_for" in task:
        task["autoretry_for"] = (ValueError,)
    app.task(name=name, **task)(guarded(work))


for each in plan["tasks"]:
    make(each["name"], each.get("task", {}), each.get("guard", {}))


@app.task(name="unguarded", default_retry_delay=timedelta(days=1).total_seconds())
def unguarded() -> None:
    """A task that is none of our business, whatever its settings."""
