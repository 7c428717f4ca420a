"""Lets a worker look after lines from its start: parked tasks may be all that there is to do."""

from __future__ import annotations

from typing import Any

from celery.bootsteps import StartStopStep

from giliran.adapters.celery.checks import guards_of
from giliran.policies import Coalesce, HandOff


class Sweeps(StartStopStep):
    """The worker's step that calls parked tasks whose caller died or whose time is over."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, parent: Any) -> None:
        """Begin, in the worker's main process; its children begin with the first such task."""
        for task in parent.app.tasks.values():
            for guard in guards_of(task):
                if isinstance(guard.options.policy, HandOff | Coalesce):
                    guard.runtime.look_after_lines()
