"""Guarded tasks that use one feature of Celery each; the worker imports them by its settings."""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import celery
from celery import shared_task, signals
from celery.app.backends import by_url
from kombu import serialization
from pydantic import BaseModel
from tests.adapters.celery.body import follow, write
from tests.adapters.celery.tasks import LATE, TTL, app, make, soon, turns

from giliran import fail, skip
from giliran.errors import Contended, LeaseLost

FILES = Path(os.environ.get("RIG_FILES", tempfile.gettempdir()))

# Pickle under a name of its own: Celery refuses to run as root if it may read pickle.
registry: Any = serialization.registry
registry.register("picklish", pickle.dumps, pickle.loads, "application/x-picklish", "binary")


def backend(url: str) -> Any:
    """Make a result backend that is not the application's own."""
    kind: Any
    kind, address = by_url(url, app.loader)
    return kind(app=app, url=address)


# ---------------------------------------------------------------------- options of a task

tracked = make("tracked", track_started=True)
quiet = make("quiet", ignore_result=True)
quiet_skips = make("quiet_skips", skip(returns="skipped"), ignore_result=True)
picklish = make("picklish", serializer="picklish")
untyped = make("untyped", typing=False)
routed = make("routed")
rejects = make("rejects", acks_late=True, acks_on_failure_or_timeout=False)
resent = make("resent", retry_on_worker_lost=True, default_retry_delay=0, max_retries=1)
resent_late = make(
    "resent_late", retry_on_worker_lost=True, default_retry_delay=0, max_retries=1, **LATE
)
unlucky = make("unlucky", max_retries=1, options={"recoveries": 0})

# ---------------------------------------------------------------------- retries

backs_off = make(
    "backs_off", fail(), autoretry_for=(Contended,), retry_backoff=1, retry_backoff_max=1,
    max_retries=50,
)  # fmt: skip
second_wind = make(
    "second_wind", options={"max_hold": 1.2}, autoretry_for=(LeaseLost,), default_retry_delay=0,
    max_retries=2,
)  # fmt: skip
stubborn = make(
    "stubborn", autoretry_for=(Exception,), default_retry_delay=0, max_retries=3, **LATE
)
remembers = make(
    "remembers", options={"idempotency_key": "{order}", "fingerprint": ("order",)}, max_retries=3
)

# ---------------------------------------------------------------------- result backends

nowhere = make("nowhere", backend=backend("disabled://"))
in_memory = make("in_memory", backend=backend("cache+memory://"))
in_files = make("in_files", backend=backend(FILES.as_uri()))
by_message = make("by_message", backend=backend("rpc://"))
BACKENDS = {"none": nowhere, "memory": in_memory, "file": in_files, "rpc": by_message}


# ---------------------------------------------------------------------- classes


class Calling(celery.Task):
    """Overrides the call, as tasks with their own context do."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Go on as Celery would."""
        write(args[0], "called")
        return super().__call__(*args, **kwargs)


class Running(celery.Task):
    """Overrides the call without asking Celery."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run at once."""
        write(args[0], "called")
        return self.run(*args, **kwargs)


class Hooked(celery.Task):
    """Tells of each of its hooks."""

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """Tell."""
        write(args[0], "before_start")

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        """Tell."""
        write(args[0], "on_success")

    def on_retry(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        """Tell."""
        write(args[0], "on_retry")

    def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        """Tell."""
        write(args[0], "on_failure")

    def after_return(
        self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any
    ) -> None:
        """Tell."""
        write(args[0], "after_return")


calling = make("calling", base=Calling)
running = make("running", base=Running)
hooked = make("hooked", base=Hooked, max_retries=1)


def _tell(signal: Any, name: str) -> None:
    def told(sender: Any = None, **more: Any) -> None:
        if sender is hooked:
            order = (more.get("args") or sender.request.args)[0]
            write(order, name, state=more.get("state", ""))

    signal.connect(told, weak=False)


for _name in ("prerun", "postrun", "success", "failure", "retry"):
    _tell(getattr(signals, f"task_{_name}"), f"task_{_name}")


# ---------------------------------------------------------------------- signatures


class Item(BaseModel):
    """What pydantic checks."""

    name: str
    amount: int = 1


@app.task(name="priced", pydantic=True)
@turns.exclusive("lock:{order}", ttl=TTL, on_contention=soon)
def priced(order: str, item: Item) -> dict[str, Any]:
    """Take a model and return a plain value."""
    return {**follow(order, "", ""), "item": item.name}


@shared_task(name="shared", max_retries=0)
@turns.exclusive("lock:{order}", ttl=TTL, on_contention=soon)
def shared(order: str) -> dict[str, Any]:
    """A task of whatever application is current."""
    return follow(order, "", "")


@app.task(name="weighs", max_retries=0)
@turns.exclusive("lock:{order}", ttl=TTL, on_contention=soon)
def weighs(order: str, load: object) -> dict[str, Any]:
    """Tell the weight of an argument."""
    follow(order, "", "")
    return {"weight": len(str(load)), "type": type(load).__name__}
