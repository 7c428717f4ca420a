"""The queue of the chaos runs: at least once, and harmless to repeat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import redis
from chaos.adapter import ChaosQueue, WasPutBack
from chaos.queue import DELAYED, SIGN, Message, RedisQueue, fresh_id

from giliran import INJECTED, Giliran, Lease
from giliran.jobs import Carried

pytestmark = pytest.mark.keys_without_ttl("chaos:queue:*")


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
