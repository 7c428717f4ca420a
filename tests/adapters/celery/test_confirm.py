"""On RabbitMQ a task is put back for certain: its copy is there before its delivery is acked."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import pytest
from celery import Celery
from kombu import entity
from kombu.exceptions import OperationalError
from tests.adapters.celery import tasks
from tests.adapters.celery.rig import Rig, outcome
from tests.support.rabbitmq import RabbitServer

from giliran.adapters.celery.publish import Publisher

kombu: Any = entity
REFUSES = {"x-max-length": 0, "x-overflow": "reject-publish"}
QUICK = {"max_retries": 1, "interval_start": 0, "interval_step": 0}
COPY = b"giliran_contentions"  # Only what was put back carries it.


class Relay:
    """Passes all on to a server, but breaks so many connections that send some bytes."""

    def __init__(self, port: int, word: bytes) -> None:
        self.breaks = 0
        self._port, self._word = port, word
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._ends):
            _end(end)

    def _start(self, run: Callable[..., None], *args: object) -> None:
        threading.Thread(target=run, args=args, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._ends += near, far
                self._start(self._pass, near, far, True)
                self._start(self._pass, far, near, False)

    def _pass(self, source: socket.socket, sink: socket.socket, requests: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if requests and self._word in data and self.breaks > 0:
                    self.breaks -= 1
                    break
                sink.sendall(data)
        for end in (source, sink):
            _end(end)


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@pytest.fixture
def app(rabbit: RabbitServer) -> Iterator[Any]:
    """An application whose own publishing does not wait for anything."""
    made: Any = Celery("confirm", broker=rabbit.url, set_as_current=False)
    made.conf.broker_transport_options = {"max_retries": 1}
    with made:
        yield made


@pytest.fixture
def publisher(app: Any) -> Iterator[Publisher]:
    """What the tests publish by."""
    made = Publisher(app)
    yield made
    for pool in made._pools.values():
        pool.force_close_all()


@pytest.fixture
def queue(app: Any) -> Iterator[Any]:
    """A queue that takes messages."""
    with app.connection_for_write() as connection:
        made = kombu.Queue(f"confirm-{uuid.uuid4().hex}").bind(connection.default_channel)
        made.declare()
        yield made
        made.delete()


def publish(publisher: Publisher, queue: str, body: str = "") -> None:
    """Publish straight to a queue."""
    with publisher.producer() as producer:
        producer.publish(body, exchange="", routing_key=queue)


@pytest.fixture(scope="module")
def relay(servers: Rig, rabbit: RabbitServer) -> Iterator[Relay]:
    """What a worker reaches RabbitMQ through."""
    with Relay(rabbit.ports[0], COPY) as relay:
        url = f"amqp://guest:guest@127.0.0.1:{relay.port}//"
        with servers.run("confirm", broker_url=url, children=1):
            yield relay


def test_a_copy_that_is_lost_on_its_way_is_sent_again(
    servers: Rig, rabbit: RabbitServer, relay: Relay, order: str, task: Any
) -> None:
    """The worker's own connection goes on meanwhile, and would ack the delivery."""
    relay.breaks = 2
    servers.hold(order, 1)
    with tasks.app.connection_for_write(rabbit.url) as connection:
        result = task.apply_async((order,), queue="confirm", connection=connection)
    assert outcome(result) == {"order": order, "run": 1}
    assert relay.breaks == 0
    (begin,) = servers.lines(order, "begin")
    assert begin["contentions"] > 0
    assert begin["retries"] == 0


def test_what_rabbitmq_refuses_raises(publisher: Publisher, queue: Any) -> None:
    full = kombu.Queue(f"full-{queue.name}", queue_arguments=REFUSES).bind(queue.channel)
    full.declare()
    with pytest.raises(OperationalError), publisher.producer() as producer:
        producer.publish("", exchange="", routing_key=full.name, retry=True, retry_policy=QUICK)
    publish(publisher, queue.name)
    full.delete()


def test_what_reaches_no_queue_raises_and_confirms_no_other(
    publisher: Publisher, queue: Any
) -> None:
    """RabbitMQ says of it that it has it, after it said that it had no queue for it."""
    full = kombu.Queue(f"full-{queue.name}", queue_arguments=REFUSES).bind(queue.channel)
    full.declare()
    for _ in range(3):
        with pytest.raises(Exception, match="NO_ROUTE"):
            publish(publisher, f"gone-{queue.name}")
        with pytest.raises(Exception, match=r"^$"):
            publish(publisher, full.name)
    publish(publisher, queue.name)
    assert queue.get(no_ack=True)
    full.delete()


def test_many_threads_publish_at_once(publisher: Publisher, queue: Any) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: publish(publisher, queue.name, str(n)), range(100)))
    found = {queue.get(no_ack=True).body for _ in range(100)}
    assert found == {str(number) for number in range(100)}


def test_a_forked_child_leaves_the_connections_of_its_parent_alone(
    publisher: Publisher, queue: Any
) -> None:
    publish(publisher, queue.name, "before")
    child = os.fork()
    try:
        for number in range(100):
            publish(publisher, queue.name, f"{bool(child)} {number}")
    finally:
        if not child:
            os._exit(sys.exc_info()[0] is not None)
    assert os.waitpid(child, 0)[1] == 0
    found = {queue.get(no_ack=True).body for _ in range(201)}
    assert len(found) == 201


def test_the_applications_own_publishing_stays_as_it_is(
    app: Any, publisher: Publisher, queue: Any
) -> None:
    publish(publisher, queue.name)
    assert app.conf.broker_transport_options == {"max_retries": 1}
    with app.connection_for_write() as connection:
        assert "confirm_publish" not in connection.transport_options
