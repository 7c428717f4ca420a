"""The fault proxy does to each request what its rules say, and nothing else."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
import redis
from redis.backoff import NoBackoff
from redis.client import PubSub
from redis.retry import Retry
from tests.support.wait import wait_for

from giliran.testing._proxy import FaultProxy
from giliran.testing._resp import Splitter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from giliran.embedded import EmbeddedServer

pytestmark = pytest.mark.keys_without_ttl("*")

LOST = (redis.ConnectionError, redis.TimeoutError)


@pytest.fixture
def proxy(server: EmbeddedServer) -> Iterator[FaultProxy]:
    with FaultProxy(server.port) as running:
        yield running
    assert not [t for t in threading.enumerate() if t.name.startswith("fault-proxy")]


@pytest.fixture(params=[2, 3])
def through(request: pytest.FixtureRequest, proxy: FaultProxy) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(
        proxy.url,
        protocol=request.param,
        socket_timeout=2,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
    ) as client:
        client.ping()
        yield client


def test_passes_everything_unchanged(through: redis.Redis, proxy: FaultProxy) -> None:
    big = "x" * 3_000_000
    assert through.set("big", big)
    assert through.get("big") == big
    through.hset("h", mapping={str(i): "v" for i in range(100)})
    assert len(through.hgetall("h")) == 100
    before = proxy.requests
    with through.pipeline(transaction=True) as pipeline:
        for i in range(50):
            pipeline.set(f"p{i}", i)
        assert pipeline.execute() == [True] * 50
    assert proxy.requests == before + 52  # with MULTI and EXEC


def test_a_dropped_reply_was_applied(
    through: redis.Redis, proxy: FaultProxy, client: redis.Redis
) -> None:
    rule = proxy.drop_reply(b"INCRBY\r\n")
    with pytest.raises(redis.ConnectionError):
        through.incr("n")
    assert client.get("n") == "1"
    assert through.incr("n") == 2
    assert rule.hits == 1


def test_the_reply_of_a_script_is_dropped_by_its_sha(
    through: redis.Redis, proxy: FaultProxy, client: redis.Redis
) -> None:
    sha = through.script_load("return redis.call('incr', KEYS[1])")
    proxy.drop_reply(sha.encode(), times=2)
    for _ in range(2):
        with pytest.raises(redis.ConnectionError):
            through.evalsha(sha, 1, "n")
    assert client.get("n") == "2"
    assert through.evalsha(sha, 1, "n") == 3


def test_a_dropped_request_was_not_applied(
    through: redis.Redis, proxy: FaultProxy, client: redis.Redis
) -> None:
    proxy.drop_request(b"INCRBY\r\n")
    with pytest.raises(redis.ConnectionError):
        through.incr("n")
    assert client.get("n") is None
    assert through.incr("n") == 1


def test_within_a_pipeline_only_that_request_is_struck(
    through: redis.Redis, proxy: FaultProxy, client: redis.Redis
) -> None:
    proxy.drop_request(b"\r\nsecond\r\n")
    with through.pipeline(transaction=False) as pipeline:
        for value, key in enumerate(("first", "second", "third"), 1):
            pipeline.set(key, value)
        with pytest.raises(redis.ConnectionError):
            pipeline.execute()
    assert client.mget("first", "second", "third") == ["1", None, None]
    proxy.drop_reply(b"\r\nfifth\r\n")
    with through.pipeline(transaction=False) as pipeline:
        for value, key in enumerate(("fourth", "fifth"), 4):
            pipeline.set(key, value)
        with pytest.raises(redis.ConnectionError):
            pipeline.execute()
    assert client.mget("fourth", "fifth") == ["4", "5"]


def test_replies_before_the_cut_are_delivered(proxy: FaultProxy) -> None:
    proxy.drop_request(b"\r\nsecond\r\n")
    with socket.create_connection(("127.0.0.1", proxy.port), 2) as raw:
        raw.sendall(b"SET first 1\r\n*2\r\n$3\r\nGET\r\n$6\r\nsecond\r\n")
        answer = b""
        while data := raw.recv(100):
            answer += data
    assert answer == b"+OK\r\n"


def test_a_duplicate_is_applied_twice_and_answered_once(
    through: redis.Redis, proxy: FaultProxy, client: redis.Redis
) -> None:
    proxy.duplicate(b"INCRBY\r\n")
    assert through.incr("n") == 1
    assert client.get("n") == "2"
    assert through.echo("still in step") == "still in step"
    assert through.incr("n") == 3


def test_a_delayed_reply_comes_late_and_was_applied_at_once(
    through: redis.Redis, proxy: FaultProxy, client: redis.Redis
) -> None:
    proxy.delay_reply(b"INCRBY\r\n", 0.3)
    began = time.monotonic()
    thread = threading.Thread(target=through.incr, args=("n",))
    thread.start()
    wait_for(lambda: client.get("n") == "1", 0.25)
    thread.join()
    assert time.monotonic() - began >= 0.3
    began = time.monotonic()
    through.incr("n")
    assert time.monotonic() - began < 0.3


def test_a_delay_holds_every_request_until_it_is_lifted(
    through: redis.Redis, proxy: FaultProxy
) -> None:
    proxy.delay(0.1)
    began = time.monotonic()
    through.ping()
    through.ping()
    assert time.monotonic() - began >= 0.2
    proxy.delay(0)
    began = time.monotonic()
    through.ping()
    assert time.monotonic() - began < 0.1


def test_a_black_hole_swallows_silently(
    through: redis.Redis, proxy: FaultProxy, client: redis.Redis
) -> None:
    proxy.blackhole(on=True)
    with (
        redis.Redis.from_url(proxy.url, socket_timeout=0.2, retry=Retry(NoBackoff(), 0)) as other,
        pytest.raises(redis.TimeoutError),
    ):
        other.incr("n")
    assert client.get("n") is None
    proxy.blackhole(on=False)
    assert through.incr("n") == 1


def test_a_reply_into_the_black_hole_was_applied(proxy: FaultProxy, client: redis.Redis) -> None:
    retry = Retry(NoBackoff(), 0)
    with redis.Redis.from_url(proxy.url, socket_timeout=0.5, retry=retry) as through:
        through.ping()
        proxy.delay_reply(b"INCRBY\r\n", 0.2)
        failed: list[BaseException] = []

        def increase() -> None:
            with pytest.raises(redis.TimeoutError) as caught:
                through.incr("n")
            failed.append(caught.value)

        thread = threading.Thread(target=increase)
        thread.start()
        wait_for(lambda: client.get("n") == "1")
        proxy.blackhole(on=True)
        thread.join()
        proxy.blackhole(on=False)
        assert len(failed) == 1
        assert through.incr("n") == 2


def test_new_connections_are_refused_and_open_ones_go_on(
    through: redis.Redis, proxy: FaultProxy
) -> None:
    proxy.refuse(on=True)
    with (
        redis.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0)) as other,
        pytest.raises(redis.ConnectionError),
    ):
        other.ping()
    assert through.ping()
    proxy.refuse(on=False)
    with redis.Redis.from_url(proxy.url) as other:
        assert other.ping()


def test_reset_all_resets_a_blocked_client(through: redis.Redis, proxy: FaultProxy) -> None:
    failed: list[BaseException] = []

    def block() -> None:
        with pytest.raises(LOST) as caught:
            through.blpop(["nothing"], timeout=1)
        failed.append(caught.value)

    before = proxy.requests
    thread = threading.Thread(target=block)
    thread.start()
    wait_for(lambda: proxy.requests > before)
    proxy.reset_all()
    thread.join()
    assert "reset by peer" in str(failed[0])
    assert through.ping()


def test_messages_of_a_subscriber_pass(through: redis.Redis, client: redis.Redis) -> None:
    with PubSub(through.connection_pool, ignore_subscribe_messages=True) as listener:
        listener.subscribe("a", "b")
        wait_for(lambda: client.publish("a", "hello"))
        message = wait_for(lambda: listener.get_message(timeout=1))
    assert message is not None
    assert message["data"] == "hello"


def test_an_absent_server_is_a_lost_connection() -> None:
    with (
        FaultProxy(1) as proxy,
        redis.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0)) as through,
        pytest.raises(redis.ConnectionError),
    ):
        through.ping()


REPLIES = [
    b"+OK\r\n",
    b"-ERR no\r\n",
    b":-7\r\n",
    b"$-1\r\n",
    b"$0\r\n\r\n",
    b"$4\r\n\r\n+\r\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*2\r\n*1\r\n:1\r\n$1\r\na\r\n",
    b"_\r\n",
    b"#t\r\n",
    b",1.5\r\n",
    b"(123\r\n",
    b"=5\r\ntxt:a\r\n",
    b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n",
    b"~1\r\n+a\r\n",
    b">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n",
    b"|1\r\n+ttl\r\n:9\r\n$1\r\nv\r\n",
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_replies_are_split_where_they_end_however_they_arrive(size: int) -> None:
    stream = b"".join(REPLIES)
    splitter = Splitter()
    found = [
        reply
        for start in range(0, len(stream), size)
        for reply in splitter.feed(stream[start : start + size])
    ]
    assert found == REPLIES
    assert splitter.rest() == b""


def test_requests_are_split_inline_ones_too() -> None:
    splitter = Splitter(requests=True)
    assert splitter.feed(b"PING\r\n*1\r\n$4\r\nPI") == [b"PING\r\n"]
    assert splitter.feed(b"NG\r\n") == [b"*1\r\n$4\r\nPING\r\n"]


def test_throttles_what_goes_through(server: EmbeddedServer) -> None:
    with FaultProxy(server.port) as proxy, redis.Redis.from_url(proxy.url) as client:
        client.set("a", b"x" * 20_000, px=60_000)
        proxy.throttle(100_000)
        started = time.monotonic()
        assert len(client.get("a") or b"") == 20_000
        assert 0.15 < time.monotonic() - started < 2
        proxy.throttle(0)
