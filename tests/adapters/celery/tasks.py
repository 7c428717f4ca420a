"""The application that test workers run and tests publish to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import celery
from celery import Celery
from kombu import entity
from tests.adapters.celery.body import STORE_URL, follow, write

from giliran import INJECTED, Giliran, Lease, coalesce, fail, hand_off, requeue, skip, wait
from giliran.adapters.celery import CeleryQueue
from giliran.errors import Contended

TTL = 1.0
VISIBILITY = 12.0
kombu: Any = entity
SHOP = kombu.Exchange("shop", type="topic")

app: Any = Celery(
    "giliran-tests",
    broker=os.environ.get("RIG_BROKER", "redis://127.0.0.1:1/0"),
    backend=os.environ.get("RIG_BACKEND", "redis://127.0.0.1:1/0"),
)
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": VISIBILITY},
    result_expires=300,
    worker_prefetch_multiplier=2,
    accept_content=["json", "application/x-picklish"],
    imports=["tests.adapters.celery.features"],
    task_queues=[
        kombu.Queue(
            "celery",
            bindings=[
                kombu.binding(kombu.Exchange("celery"), "celery"),
                kombu.binding(SHOP, "shop.*"),
            ],
        ),
        kombu.Queue("audit", bindings=[kombu.binding(SHOP, "#")]),
    ],
    task_routes={"routed": {"exchange": "shop", "routing_key": "shop.routed"}},
)
app.conf.update(json.loads(os.environ.get("RIG_SETTINGS", "{}")))
turns = Giliran(
    STORE_URL, queues=[CeleryQueue(app, keep_visible=app.conf.get("keep_visible", True))]
)
soon = requeue(base=0.2, cap=0.4, give_up_after=60)


def make(
    name: str, policy: Any = soon, *, options: dict[str, Any] | None = None, **task: Any
) -> Any:
    """Make a guarded task that follows a plan; by default it may not retry at all."""
    guarded: Callable[..., Any] = turns.exclusive(
        "lock:{order}", ttl=TTL, on_contention=policy, **(options or {})
    )

    @app.task(name=name, **{"max_retries": 0, **task})
    @guarded
    def work(
        order: str, first: str = "", later: str = "", *, lease: Lease = INJECTED
    ) -> dict[str, Any]:
        return follow(order, first, later, lease)

    return work


LATE: dict[str, Any] = {"acks_late": True, "reject_on_worker_lost": True}

early = make("early")
late = make("late", **LATE)
skips = make("skips", skip(returns={"skipped": True}))
fails = make("fails", fail())
insists = make(
    "insists", fail(), autoretry_for=(Contended,), retry_backoff=False, default_retry_delay=0.2,
    max_retries=30,
)  # fmt: skip
waits = make("waits", wait(10))
in_line = make("in_line", hand_off(durable=False), **LATE)
in_line_early = make("in_line_early", hand_off(durable=False))
impatient = make("impatient", hand_off(give_up_after=1, durable=False))
newest = make("newest", coalesce(durable=False), **LATE)
gives_up = make("gives_up", requeue(base=0.1, cap=0.2, give_up_after=0.6))
drops_out = make("drops_out", requeue(base=0.1, cap=0.2, give_up_after=0.6, then="skip"))
patient = make("patient", requeue(base=60, cap=60, give_up_after=900))
short = make("short", options={"max_hold": 1.2})
flaky = make("flaky", autoretry_for=(ValueError,), default_retry_delay=0, max_retries=3)
survivor = make("survivor", options={"max_hold": 60}, acks_on_failure_or_timeout=False, **LATE)
once_or_doubt = make("once_or_doubt", options={"idempotency_key": "{order}", "after_crash": "hold"})
once_again = make("once_again", options={"idempotency_key": "{order}", "fingerprint": ("order",)})


@app.task(name="refund")
@turns.exclusive("lock:{order}", ttl=TTL, on_contention=soon, idempotency_key="{refund_id}")
def refund(
    order: str, refund_id: str, amount: int, *, lease: Lease = INJECTED
) -> dict[str, str | int]:
    """Refund once per refund_id."""
    follow(order, "", "", lease)
    return {"refunded": amount}


@app.task(name="both", max_retries=0)
@turns.exclusive(["lock:{order}", "wallet:{wallet}"], ttl=TTL, on_contention=soon)
def both(order: str, wallet: str, plan: str = "") -> dict[str, Any]:
    """Needs two resources."""
    return follow(order, plan, plan)


class Plain(celery.Task):
    """A base class that is not made by the application."""


@app.task(name="bound", bind=True, base=Plain)
@turns.exclusive("lock:{order}", ttl=TTL, on_contention=soon, idempotency_key="{order}")
def bound(task: Any, order: str) -> dict[str, str | int]:
    """A bound task whose receiver is not called self."""
    follow(order, "", "")
    return {"id": str(task.request.id)}


class Refund(celery.Task):
    """A task written as a class."""

    name = "class_based"

    @turns.exclusive("lock:{order}", ttl=TTL, on_contention=soon)
    def run(self, order: str, first: str = "", later: str = "") -> dict[str, Any]:
        """Follow the plan."""
        return follow(order, first, later)


class_based: Any = app.register_task(Refund())


@app.task(name="outer")
def outer(order: str, plan: str) -> dict[str, Any]:
    """Not guarded itself."""
    return follow(order, plan, plan)


@app.task(name="note")
def note(order: str, what: str, **more: object) -> str:
    """Write to the ledger, as callback or canary."""
    write(order, what, **more)
    return what


@app.task(name="collect")
def collect(results: list[Any], order: str) -> list[Any]:
    """End a chord."""
    write(order, "collected", results=results)
    return results


@app.task(name="errback")
def errback(request: Any, error: Any, trace: Any, order: str) -> None:
    """Be told of a failure as Celery's newer errbacks are."""
    write(order, "errback", error=type(error).__name__)
