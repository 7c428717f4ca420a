"""The queue of the chaos runs: at least once, and harmless to repeat."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path

import pytest
import redis
from chaos.adapter import ChaosQueue, WasParked, WasPutBack
from chaos.audit import audit
from chaos.history import Recorder, read
from chaos.jobs import Bodies, Diary, make_jobs
from chaos.lines import Lines
from chaos.queue import DELAYED, SIGN, Message, RedisQueue, fresh_id
from chaos.sinks import Ledger
from tests.support.wait import wait_for

from giliran import INJECTED, Giliran, Lease
from giliran.embedded import EmbeddedServer
from giliran.jobs import Carried

pytestmark = pytest.mark.keys_without_ttl("chaos:queue:*", "{giliran}:*", "{lock:a}:due")


@pytest.fixture
def queue(redis_url: str) -> Iterator[RedisQueue]:
    made = RedisQueue(redis_url, "w1")
    yield made
    made.close()


@pytest.fixture
def other(redis_url: str) -> Iterator[RedisQueue]:
    made = RedisQueue(redis_url, "w2")
    yield made
    made.close()


def message() -> Message:
    return Message("plain", {"resource": "a"})


def test_a_message_that_is_sent_again_is_taken_once(queue: RedisQueue) -> None:
    sent = message()
    queue.enqueue(sent)
    queue.enqueue(sent)
    assert queue.fetch() == (sent, False)
    queue.ack(sent)
    assert queue.fetch() is None


def test_a_fetch_that_is_sent_again_finds_what_the_first_one_took(queue: RedisQueue) -> None:
    sent = message()
    queue.enqueue(sent)
    queue.enqueue(message())
    assert queue.fetch() == (sent, False)
    assert queue.fetch() == (sent, True)


def test_an_ack_that_is_sent_again_changes_nothing(queue: RedisQueue) -> None:
    first, second = message(), message()
    queue.enqueue(first)
    queue.enqueue(second)
    queue.fetch()
    queue.ack(first)
    queue.ack(first)
    assert queue.fetch() == (second, False)
    assert queue.size() == 1


def test_a_dead_worker_s_messages_go_to_the_living(
    queue: RedisQueue, other: RedisQueue, client: redis.Redis
) -> None:
    sent = message()
    queue.enqueue(sent)
    queue.fetch()
    assert other.recover() == 0
    client.delete(SIGN + "w1")
    assert other.recover() == 1
    assert other.fetch() == (sent, False)
    assert queue.fetch() is None


def test_a_copy_of_what_was_acked_late_is_dropped(
    queue: RedisQueue, other: RedisQueue, client: redis.Redis
) -> None:
    sent = message()
    queue.enqueue(sent)
    queue.fetch()
    client.delete(SIGN + "w1")
    other.recover()
    queue.ack(sent)
    assert other.fetch() is None
    assert other.size() == 0


def test_a_delayed_message_comes_when_it_is_due(queue: RedisQueue, client: redis.Redis) -> None:
    sent = message()
    queue.enqueue(sent, delay=60)
    assert queue.fetch() is None
    client.zadd(DELAYED, {sent.id: 1})
    assert queue.fetch() == (sent, False)


def test_a_job_is_put_back_as_a_copy_that_carries_its_counters(queue: RedisQueue) -> None:
    sent = message()
    queue.enqueue(sent)
    queue.fetch()
    adapter = ChaosQueue(queue)

    def plain() -> None:
        raise AssertionError

    with adapter.running(sent):
        job = adapter.current(plain)
        assert job is not None
        assert adapter.current(plain) is None  # What the job calls in turn is no job.
    carried = Carried(contentions=3, contended_since_ms=7)
    assert isinstance(job.put_back(0.0, carried), WasPutBack)
    queue.ack(sent)
    fetched = queue.fetch()
    assert fetched is not None
    copy = fetched[0]
    assert copy.id != sent.id
    assert copy == replace(sent, id=copy.id, carried=carried)


def test_a_message_survives_being_written() -> None:
    sent = Message("plain", {"seconds": 0.5}, carried=Carried(outages=2), id=fresh_id())
    assert Message.loads(sent.dumps()) == sent


def test_a_job_that_finds_out_by_itself_that_its_lease_is_lost_is_put_back(
    queue: RedisQueue, redis_url: str
) -> None:
    sent = message()
    queue.enqueue(sent)
    queue.fetch()
    adapter = ChaosQueue(queue)
    turns = Giliran(redis_url, queues=[adapter])

    @turns.exclusive("lock:{resource}", on_lost="flag")
    def plain(resource: str, *, lease: Lease = INJECTED) -> str:
        lease.lose("taken")  # As the heartbeat does.
        lease.check()
        return resource

    with adapter.running(sent), pytest.raises(WasPutBack):
        plain("a")
    turns.close()
    queue.ack(sent)
    assert [copy.carried.recoveries for copy in queue.messages()] == [1]


def test_a_parked_job_is_published_as_a_copy_with_its_place_and_verdict(queue: RedisQueue) -> None:
    sent = message()
    adapter = ChaosQueue(queue)

    def plain() -> None:
        raise AssertionError

    with adapter.running(sent):
        job = adapter.current(plain)
    assert job is not None
    shelved = job.shelve(Carried(contentions=1, contended_since_ms=7))
    assert shelved.route == adapter.route
    adapter.publish(shelved.payload, 5, "gave_up")
    fetched = queue.fetch()
    assert fetched is not None
    carried = Carried(contentions=1, contended_since_ms=7, rank=5, verdict="gave_up")
    assert fetched[0] == replace(sent, id=fetched[0].id, carried=carried)
    assert fetched[0].id != sent.id


def test_a_broker_that_is_away_is_no_fault_of_the_parked_job() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    away = RedisQueue(f"redis://127.0.0.1:{port}")
    with pytest.raises(OSError, match="refused"):
        ChaosQueue(away).publish(message().dumps(), 5, "")
    away.close()


def test_poison_cannot_be_published(queue: RedisQueue) -> None:
    poison = Message("in_line", {"resource": "a", "effect": "poison:e"})
    with pytest.raises(ValueError, match="on purpose"):
        ChaosQueue(queue).publish(poison.dumps(), 5, "")
    assert queue.size() == 0


def test_jobs_in_line_are_counted_until_the_line_is_gone(
    server: EmbeddedServer, client: redis.Redis
) -> None:
    lines = Lines(server.port)
    assert lines.empty()
    shelf = "{lock:r1}:parked"
    client.hset(shelf, mapping={"=a": "job", "+a": "payload", "/group": "a", "=b": "job"})
    assert lines.parked() == 2
    assert not lines.empty()
    client.delete(shelf)
    client.zadd("{lock:r1}:due", {"a": 1})
    assert not lines.empty()
    client.rename("{lock:r1}:due", "lock:r1")
    assert not lines.empty()
    client.delete("lock:r1")
    assert lines.empty()
    lines.close()


def test_what_is_left_of_lines_and_what_was_set_aside_is_written_down(
    server: EmbeddedServer, client: redis.Redis, tmp_path: Path
) -> None:
    for name in ("{giliran}:lines:chaos", "{lock:r1}:due", "{lock:r1}:line"):
        client.zadd(name, {"a": 1})
    client.hset("{lock:r1}:parked", mapping={"=a": "job", "+a": "payload"})
    client.rpush("{lock:r1}:dead", "b|7||chaos|payload")
    client.expire("{lock:r1}:dead", 60)
    audit(server.port, Recorder(tmp_path, "main"))
    client.flushall()
    told = [(one["kind"], one.get("key") or one["pub"]) for one in read(tmp_path)]
    assert told == [
        ("dead", "b"),
        ("line left", "{lock:r1}:due"),
        ("line left", "{lock:r1}:line"),
        ("line left", "{lock:r1}:parked"),
        ("left", "a"),
    ]


def test_a_job_that_meets_a_busy_resource_is_parked_and_comes_in_its_turn(
    queue: RedisQueue, redis_url: str, tmp_path: Path
) -> None:
    adapter = ChaosQueue(queue)
    sent = Message("newest", {"resource": "a", "effect": "e", "seconds": 0.0, "pause": 0.0})
    diary = Diary(Recorder(tmp_path, "w1"))
    with contextlib.closing(Giliran(redis_url, queues=[adapter])) as turns:
        newest = make_jobs(turns, Bodies(diary, lambda: Ledger(tmp_path / "none")))["newest"]
        elsewhere, hold = copy_context(), turns.hold("lock:a")
        elsewhere.run(hold.__enter__)
        with adapter.running(sent), pytest.raises(WasParked):
            newest(**sent.args)
        assert queue.size() == 0
        elsewhere.run(hold.__exit__, None, None, None)
        wait_for(queue.size)
        fetched = queue.fetch()
        assert fetched is not None
        with adapter.running(fetched[0]):
            assert newest(**sent.args) == "e"
