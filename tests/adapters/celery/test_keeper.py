"""The keeper through outages, and what the adapter takes for the visibility timeout."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery import Celery
from kombu import entity, messaging
from kombu.connection import Connection
from tests.adapters.celery.rig import Rig
from tests.support.sqs import SqsServer
from tests.support.wait import wait_for

from giliran.adapters.celery import CeleryQueue, keeper
from giliran.adapters.celery.visibility import Visibility
from giliran.testing._proxy import FaultProxy

kombu: Any = SimpleNamespace(Connection=Connection, Consumer=messaging.Consumer, Queue=entity.Queue)
PREFIX = "some prefix:"
INDEX = f"{PREFIX}unacked_index"


class Holder:
    """A consumer that holds a message, watched through a proxy."""

    def __init__(self, broker: redis.Redis, proxy: FaultProxy, connection: Any) -> None:
        self.broker, self.proxy = broker, proxy
        queue = kombu.Queue(f"keeper-{uuid.uuid4().hex}")
        self.messages: list[Any] = []
        consumer = kombu.Consumer(connection, [queue], on_message=self.messages.append)
        with consumer:
            connection.Producer().publish("", routing_key=queue.name)
            connection.drain_events(timeout=5)
        far = connection.clone(hostname=f"redis://127.0.0.1:{proxy.port}/7")
        self.watch = keeper.Watch(
            SimpleNamespace(connection=far, task_consumer=consumer), keeper.Redis
        )

    def score(self) -> float:
        """Tell when its message was last said to be held; 0 if it is not."""
        (message,) = self.messages
        found: Any = self.broker.zscore(INDEX, message.delivery_tag)
        return float(found or 0)

    def wait_refresh(self) -> None:
        """Wait until it is said again."""
        now = self.score()
        wait_for(lambda: self.score() > now, 10)


@pytest.fixture
def holder(servers: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holder]:
    """A message that is held and kept, with other keys than kombu's usual."""
    monkeypatch.setattr(keeper, "RETRY", 0.05)
    options = {"visibility_timeout": 1, "global_keyprefix": PREFIX}
    url = servers.database(7)
    with (
        redis.Redis.from_url(url, decode_responses=True) as broker,
        FaultProxy(servers.ports[0]) as proxy,
        kombu.Connection(url, transport_options=options) as connection,
    ):
        made = Holder(broker, proxy, connection)
        yield made
        made.watch.close()


def test_a_held_message_is_refreshed_and_an_acked_one_never_comes_back(holder: Holder) -> None:
    holder.wait_refresh()
    (message,) = holder.messages
    message.ack()
    before = holder.proxy.requests
    holder.watch._channel.qos._delivered["late"] = message
    holder.watch._channel.qos._delivered[message.delivery_tag] = message
    holder.watch._channel.qos._dirty.clear()  # As if the keeper had looked before the ack.
    wait_for(lambda: holder.proxy.requests > before + 1, 10)
    assert holder.broker.zcard(INDEX) == 0
    holder.watch._channel.qos._delivered.clear()


def test_an_outage_is_told_once_and_outlived(
    holder: Holder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "giliran")
    holder.wait_refresh()
    holder.proxy.refuse(on=True)
    holder.proxy.reset_all()
    wait_for(lambda: "cannot be kept invisible" in caplog.text, 10)
    holder.proxy.refuse(on=False)
    holder.wait_refresh()
    wait_for(lambda: "kept invisible again" in caplog.text, 10)
    assert caplog.text.count("cannot be kept invisible") == 1


def test_sqs_is_asked_for_no_more_than_it_gives(
    sqs: SqsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"q-{uuid.uuid4().hex}"
    options = {"is_secure": False}
    with kombu.Connection(sqs.url, transport_options=options) as connection:
        client = connection.default_channel.sqs()
        made = client.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "2"})
        url = made["QueueUrl"]
        for number in range(11):
            client.send_message(QueueUrl=url, MessageBody=str(number))
        held: dict[str, Any] = {}
        for size in (10, 1):
            got = client.receive_message(QueueUrl=url, MaxNumberOfMessages=size)["Messages"]
            info = {"sqs_queue": url, "routing_key": name}
            found = SimpleNamespace(delivery_info=info)
            held |= {message["ReceiptHandle"]: found for message in got}
        client.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "43200"})
        keeps = keeper.Sqs(connection.default_channel)
        keeps.hide(held)
        asked = time.monotonic()
        wait_for(lambda: time.monotonic() > asked + 2)  # By their first timeout they were visible.
        assert _hidden(client, url) == 11
        monkeypatch.setattr(keeper, "SQS_LONGEST", 14_400.0)
        keeps.hide(held)
        keeps.hide(held)
    assert caplog.text.count("longer than 4 h") == 11


def _hidden(client: Any, url: str) -> int:
    wanted = "ApproximateNumberOfMessagesNotVisible"
    answer = client.get_queue_attributes(QueueUrl=url, AttributeNames=[wanted])
    return int(answer["Attributes"][wanted])


# ------------------------------------------------------------------ what is taken for it


def ask(url: str, options: dict[str, Any], consumer_timeout: float | None = 1800.0) -> Visibility:
    """Make what asks a broker."""
    app: Any = Celery("asks", broker=url, set_as_current=False)
    app.conf.broker_transport_options = options
    return Visibility(app, consumer_timeout)


def request(**delivery: str) -> Any:
    """Make a request as Celery hands it over."""
    return SimpleNamespace(properties={"delivery_info": delivery})


@pytest.mark.parametrize(("options", "seconds"), [({}, 3600), ({"visibility_timeout": 77}, 77)])
def test_redis_is_asked_by_its_channel(
    servers: Rig, options: dict[str, Any], seconds: float
) -> None:
    assert ask(servers.database(7), options).of(request(routing_key="any")) == seconds


def test_sqs_tells_what_the_queue_says_and_not_the_settings(sqs: SqsServer) -> None:
    options = {"is_secure": False, "visibility_timeout": 30, "wait_time_seconds": 0}
    name = f"q-{uuid.uuid4().hex}"
    with kombu.Connection(sqs.url, transport_options=options) as connection:
        channel = connection.default_channel
        url = channel.sqs().create_queue(QueueName=name, Attributes={"VisibilityTimeout": "123"})
        asked = request(sqs_queue=url["QueueUrl"], routing_key=name)
        assert ask(sqs.url, options).of(asked) == 123


@pytest.mark.parametrize("limit", [60.0, None])
def test_rabbitmq_is_not_asked_since_it_does_not_tell(limit: float | None) -> None:
    assert ask("amqp://127.0.0.1:1//", {}, limit).of(request(routing_key="any")) == limit


def test_a_broker_that_is_away_fails_no_job_and_is_asked_again(
    servers: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    with FaultProxy(servers.ports[0]) as proxy:
        asks = ask(proxy.url, {})
        proxy.refuse(on=True)
        assert asks.of(request(routing_key="any")) == 3600
        assert "visibility timeout is not known yet" in caplog.text
        proxy.refuse(on=False)
        before = proxy.requests
        assert asks.of(request(routing_key="any")) == 3600
        assert proxy.requests == before  # It is left alone for a while.
        asks._ask_at = 0.0
        assert asks.of(request(routing_key="any")) == 3600
        assert proxy.requests > before


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), True, "1800"])
def test_a_consumer_timeout_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="consumer_timeout"):
        CeleryQueue(Celery("wrong", set_as_current=False), consumer_timeout=wrong)


def test_the_keeper_is_a_step_of_the_worker_unless_it_is_switched_off() -> None:
    kept: Any = Celery("kept", set_as_current=False)
    unkept: Any = Celery("unkept", set_as_current=False)
    CeleryQueue(kept, consumer_timeout=timedelta(minutes=5))
    CeleryQueue(unkept, consumer_timeout=None, keep_visible=False)
    assert keeper.Keeper in kept.steps["consumer"]
    assert keeper.Keeper not in unkept.steps["consumer"]
