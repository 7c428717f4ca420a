"""The worker of the benchmark: one task for each way to keep a resource to oneself."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import redis
import redis_lock  # type: ignore[import-untyped]
from celery import Celery
from celery.signals import task_prerun

from giliran import INJECTED, Giliran, Lease, hand_off
from giliran.adapters.celery import CeleryQueue

URL = os.environ.get("BENCH_URL", "redis://127.0.0.1:1/0")
TTL = 30

app: Any = Celery("giliran-bench", broker=URL)
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
)
turns = Giliran(URL, queues=[CeleryQueue(app)])
client: Any = redis.Redis.from_url(URL)


def count(task_id: str = "", **_: object) -> None:
    """Count every delivery, whatever comes of it."""
    client.rpush("deliveries", task_id)


begins: Any = task_prerun
begins.connect(count, weak=False)


def work(seconds: float, lease: Lease | None = None) -> None:
    """Take the time, and write down from when to when."""
    began = time.monotonic()
    time.sleep(seconds)
    request = app.current_task.request
    headers: dict[str, Any] = request.headers or {}
    rank = int(headers.get("giliran_rank") or 0)
    fence = lease.fence if lease is not None else 0
    client.rpush("ledger", f"{request.id} {began} {time.monotonic()} {fence} {rank}")


@app.task(name="unguarded")
def unguarded(key: str, seconds: float) -> None:
    """No guard at all."""
    del key
    work(seconds)


@app.task(name="relay")
def relay(seconds: float, left: int) -> None:
    """No guard and no crowd: each task sends the next one, the least that a re-delivery costs."""
    work(seconds)
    if left:
        relay.delay(seconds, left - 1)


@app.task(name="giliran")
@turns.exclusive("bench:{key}", ttl=TTL, on_contention=hand_off(durable=False))
def giliran(key: str, seconds: float, *, lease: Lease = INJECTED) -> None:
    """Hand-off."""
    del key
    work(seconds, lease)


@app.task(name="redis-py Lock")
def redis_py(key: str, seconds: float) -> None:
    """Wait in the slot, polling."""
    with client.lock(f"bench:{key}", timeout=TTL):
        work(seconds)


@app.task(name="python-redis-lock")
def python_redis_lock(key: str, seconds: float) -> None:
    """Wait in the slot, woken by a signal."""
    with redis_lock.Lock(client, f"bench:{key}", expire=TTL):
        work(seconds)


@app.task(name="Celery retry", bind=True, max_retries=None)
def celery_retry(task: Any, key: str, seconds: float) -> None:
    """Give the slot back and come again, later and later."""
    lock = client.lock(f"bench:{key}", timeout=TTL)
    if not lock.acquire(blocking=False):
        ceiling = min(4.0, 0.25 * 2**task.request.retries)
        raise task.retry(countdown=random.uniform(ceiling / 2, ceiling))
    try:
        work(seconds)
    finally:
        lock.release()


@app.task(name="nothing")
def nothing() -> None:
    """Warm a child up."""


WAYS: dict[str, Any] = {
    "giliran": giliran,
    "redis-py Lock": redis_py,
    "python-redis-lock": python_redis_lock,
    "Celery retry": celery_retry,
}
