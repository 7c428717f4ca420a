"""What the bodies of the worker's tasks do: they follow a plan and keep a ledger of it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import redis
from billiard.exceptions import SoftTimeLimitExceeded
from celery import chain, chord, current_app, group
from celery.exceptions import Ignore, Reject

from giliran import Lease, current_lease
from giliran.errors import Contended

LEDGER_URL = os.environ.get("RIG_LEDGER", "redis://127.0.0.1:1/0")
STORE_URL = os.environ.get("RIG_STORE", "redis://127.0.0.1:1/0")


celery: Any = current_app


def write(order: str, what: str, **more: object) -> int:
    """Append a line to the ledger of an order; return how many there are."""
    line = json.dumps({"what": what, "at": time.monotonic(), "pid": os.getpid(), **more})
    with redis.Redis.from_url(LEDGER_URL) as ledger:
        return int(ledger.rpush(f"ledger:{order}", line))


def follow(order: str, first: str, later: str, lease: Lease | None = None) -> dict[str, Any]:
    """Follow one plan on the first run and another on later ones; a plan is steps with commas."""
    with redis.Redis.from_url(LEDGER_URL) as ledger:
        run = int(ledger.incr(f"runs:{order}"))
    write(order, "begin", run=run, fence=lease.fence if lease else 0, **_message())
    try:
        for step in (first if run == 1 else later).split(","):
            name, _, word = step.strip().partition(" ")
            STEPS[name](order, word)
        write(order, "end", run=run)
    except BaseException as error:
        write(order, "raised", run=run, error=type(error).__name__)
        raise
    return {"order": order, "run": run}


def _message() -> dict[str, Any]:
    """Tell what this delivery looks like to Celery."""
    request = celery.current_task.request
    headers = request.headers or {}
    delivery = request.delivery_info or {}
    return {
        "task_id": request.id,
        "retries": request.retries,
        "publication": headers.get("giliran_publication"),
        "contentions": headers.get("giliran_contentions", 0),
        "recoveries": headers.get("giliran_recoveries", 0),
        "outages": headers.get("giliran_outages", 0),
        "headers": sorted(headers),
        "priority": delivery.get("priority"),
        "expires": request.expires,
    }


def _gate(order: str, word: str) -> None:
    """Wait until the test opens the gate."""
    with redis.Redis.from_url(LEDGER_URL, socket_timeout=None) as ledger:
        ledger.blpop([f"gate:{order}"], timeout=float(word or 20))


def _lose(order: str, thief: str) -> None:
    """Lose the lock to nobody, or for a moment to a thief."""
    with redis.Redis.from_url(STORE_URL) as store:
        if thief:
            store.set(f"lock:{order}", thief, px=400)
        else:
            store.delete(f"lock:{order}")


def _swallow(order: str, word: str) -> None:
    try:
        time.sleep(float(word))
    except Exception:
        write(order, "swallowed")


def _catch_soft_limit(order: str, word: str) -> None:
    try:
        time.sleep(float(word))
    except SoftTimeLimitExceeded:
        write(order, "soft limit")


def _raise(order: str, word: str) -> None:
    raise {"value": ValueError, "ignore": Ignore, "reject": Reject}[word]("said so")


def _retry(order: str, word: str) -> None:
    raise celery.current_task.retry(countdown=float(word or 0.2), max_retries=2)


def _retry_early(order: str, word: str) -> None:
    """Retry, and let the copy begin before this body is over."""
    try:
        raise celery.current_task.retry(countdown=0, max_retries=1)
    finally:
        time.sleep(0.3)


def _call(order: str, word: str) -> None:
    """Call a guarded task's function directly, as any other function."""
    try:
        celery.tasks[word](order)
    except Contended as error:
        write(order, "contended inside", holder=error.holder)


def _note(order: str, what: str) -> Any:
    return celery.tasks["note"].si(order, what)


def _replace(order: str, shape: str) -> None:
    """Let a canvas take this task's place."""
    shapes = {
        "note": lambda: _note(order, "one"),
        "chain": lambda: chain(_note(order, "one"), _note(order, "two")),
        "group": lambda: group(_note(order, "one"), _note(order, "two")),
        "chord": lambda: chord([_note(order, "one")], celery.tasks["collect"].s(order)),
        "guarded": lambda: celery.tasks["late"].si(order),
    }
    raise celery.current_task.replace(shapes[shape]())


def _change(order: str, word: str) -> None:
    """Retry with other arguments."""
    raise celery.current_task.retry(
        args=(order, "", f"nap {word}"), kwargs={}, countdown=0, max_retries=1
    )


def _retry_with_error(order: str, word: str) -> None:
    """Retry once more than is allowed."""
    raise celery.current_task.retry(exc=ValueError(word), max_retries=0)


def _retry_quietly(order: str, word: str) -> None:
    """Publish the retry, and go on."""
    celery.current_task.retry(countdown=0, max_retries=1, throw=False)


def _spoil(order: str, word: str) -> None:
    """Put into the request what no message can carry."""
    celery.current_task.request.kwargs["later"] = object()


def _settle(order: str, word: str) -> None:
    """Have an effect that a repeat of the same task cannot double."""
    with redis.Redis.from_url(LEDGER_URL) as ledger:
        ledger.hsetnx(f"settled:{order}", celery.current_task.request.id, current_lease().fence)


STEPS: dict[str, Callable[[str, str], object]] = {
    "": lambda order, word: None,
    "number": lambda order, word: None,
    "nap": lambda order, word: time.sleep(float(word)),
    "gate": _gate,
    "lose": _lose,
    "swallow": _swallow,
    "catch": _catch_soft_limit,
    "raise": _raise,
    "retry": _retry,
    "hasten": _retry_early,
    "call": _call,
    "replace": _replace,
    "grow": lambda order, word: celery.current_task.add_to_chord(_note(order, word)),
    "send": lambda order, word: celery.tasks[word].delay(order),
    "change": _change,
    "exhaust": _retry_with_error,
    "quietly": _retry_quietly,
    "spoil": _spoil,
    "settle": _settle,
    "kill": lambda order, word: os.kill(os.getpid(), signal.SIGKILL),
}
