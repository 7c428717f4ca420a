"""Who listens: a broken listener breaks no job, and no secret reaches logs or events."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import redis
from tests.support.wait import wait_for

from giliran import INJECTED, Contended, Event, KeyReused, Lease, LeaseLost

if TYPE_CHECKING:
    from tests.conftest import MakeServer
    from tests.faults.conftest import Connect

FIELDS = {"job_id", "resource_id", "lock_key", "lock_owner", "lock_ttl", "result", "reason"}


def broken(_: Event) -> None:
    raise RuntimeError("a listener's own bug")


def test_a_listener_that_raises_breaks_neither_job_nor_heartbeat(
    connect: Connect, client: redis.Redis, redis_url: str
) -> None:
    heard: list[str] = []
    turns = connect(redis_url, listeners=[broken, lambda event: heard.append(event.name)])

    @turns.exclusive("lock:{order}", ttl=1, on_lost="flag", idempotency_key="refund:{order}")
    def refund(order: int, *, lease: Lease = INJECTED) -> int:
        if order == 2:
            client.delete("lock:2")
            wait_for(lambda: lease.lost)
        return order

    assert refund(1) == refund(1) == 1
    with pytest.raises(LeaseLost):
        refund(2)
    assert turns.counts["listener.failed"] == len(heard)
    assert {"lock.acquired", "lock.released", "job.ran", "job.replayed", "lock.lost"} <= set(heard)


def test_no_secret_reaches_logs_or_events(
    make_server: MakeServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server("--requirepass", "hunter2")
    url = server.url.replace("//", "//:hunter2@")
    events: list[Event] = []
    tokens: list[str] = []
    turns = connect(url, listeners=[events.append])

    @turns.exclusive("lock:{order}", ttl=1, idempotency_key="refund:{order}")
    def refund(order: int, card: str, *, lease: Lease = INJECTED) -> str:
        tokens.append(lease.token)
        if order == 2:
            with redis.Redis.from_url(url) as client:
                client.set("lock:2", "another", px=1000)
        return f"receipt for {card}"

    with caplog.at_level(logging.DEBUG, "giliran"):
        refund(1, "visa-of-ada")
        refund(1, "visa-of-ada")
        with pytest.raises(KeyReused):
            refund(1, "visa-of-bob")
        with pytest.raises(LeaseLost):
            refund(2, "visa-of-ada")
        with pytest.raises(Contended):
            refund(2, "visa-of-ada")
    told = caplog.text + repr(events) + repr([vars(record) for record in caplog.records])
    assert "lock.lost" in told
    for secret in (*tokens, "hunter2", "visa-of-ada", "visa-of-bob", "receipt for"):
        assert secret not in told


def test_logs_have_the_fixed_fields(
    connect: Connect, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    turns = connect(redis_url, scope="acme")
    with caplog.at_level(logging.INFO, "giliran"), turns.hold("lock:1", ttl=5):
        pass
    acquired = vars(caplog.records[0])
    assert acquired.keys() >= FIELDS
    assert acquired["event"] == "lock.acquired"
    assert (acquired["resource_id"], acquired["lock_key"]) == ("lock:1", "acme:lock:1")
    assert acquired["lock_ttl"] == 5
    assert [vars(record)["event"] for record in caplog.records] == [
        "lock.acquired",
        "lock.released",
        "job.ran",
    ]
