"""Keeps what a worker holds invisible: running, prefetched and waiting for their time alike.

Redis (by kombu) and SQS deliver a message again once it was unacked for the visibility timeout,
whether its worker is dead or busy. A live worker therefore says so every third of that time.

It is a help and no promise: a worker that is frozen, or whose broker is away for too long, says
nothing, and copies are made. A guard knows those by their publication, and runs none of them.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from celery.bootsteps import StartStopStep

from giliran.adapters.celery.visibility import connect, hasty, of_channel, of_sqs
from giliran.heart import native
from giliran.interrupt import under_gevent

_log = logging.getLogger("giliran")
Item = TypeVar("Item")

NAME = "giliran-keeper"
TIMEOUT = 5.0  # How long the broker may take for one answer, in seconds.
RETRY = 5.0  # The longest pause after a failure, in seconds.
PAUSE_MIN = 0.25
REDIS_BATCH, SQS_BATCH = 500, 10
SQS_LONGEST = 43_200.0  # How long SQS hides a message at most, in seconds.


class Keeper(StartStopStep):
    """The worker's step that keeps its messages invisible; added by `CeleryQueue`."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._watch: Watch | None = None

    def start(self, parent: Any) -> None:
        """Begin, or go on with the new channel after a reconnect."""
        self.shutdown(parent)
        make = _BROKERS.get(parent.connection.transport.driver_type)
        if make is not None:
            self._watch = Watch(parent, make)

    def stop(self, parent: Any) -> None:
        """Go on: tasks that run at a warm shutdown are acked when they end, which may take long."""

    def shutdown(self, parent: Any) -> None:
        """End, when nothing runs any more."""
        del parent
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()


class Watch:
    """A thread beside the worker's own, which a task may block, with a connection of its own.

    Nothing that goes wrong here ends the worker or a task.
    """

    def __init__(self, consumer: Any, make: type[Broker]) -> None:
        self._consumer, self._make = consumer.task_consumer, make
        self._channel = consumer.task_consumer.channel
        self._connection = hasty(consumer.connection, TIMEOUT)
        self._broker: Broker | None = None
        self._away = False
        self._bell: Any = native("allocate_lock")()
        self._bell.acquire()
        if under_gevent():  # A patched thread is a greenlet, starved by any task that computes.
            native("start_new_thread")(self._main, ())
        else:
            threading.Thread(target=self._main, name=NAME, daemon=True).start()

    def close(self) -> None:
        """End the thread soon."""
        if self._bell.locked():
            self._bell.release()

    def _main(self) -> None:
        pause = 0.0
        while not self._bell.acquire(True, pause):  # noqa: FBT003  _thread's locks take no keywords here
            try:
                pause = max(PAUSE_MIN, self._keep() / 3)
            except Exception as error:
                self._failed(error)
                pause = RETRY
        self._disconnect()

    def _keep(self) -> float:
        """Refresh all that is held; return the shortest visibility timeout, in seconds."""
        if self._broker is None:
            self._broker = self._make(connect(self._connection))
        visibility = self._broker.visibility([str(queue.name) for queue in self._consumer.queues])
        self._broker.hide(held(self._channel))
        if self._away:
            self._away = False
            _log.info("messages are kept invisible again")
        return visibility

    def _failed(self, error: Exception) -> None:
        self._disconnect()
        if not self._away:
            self._away = True
            _log.warning("messages cannot be kept invisible; trying again: %r", error)

    def _disconnect(self) -> None:
        self._broker = None
        with contextlib.suppress(Exception):  # Broken connections cannot always be closed.
            self._connection.collect()


def held(channel: Any) -> dict[str, Any]:
    """Return the messages a channel delivered and got no ack for, by tag."""
    qos = channel.qos
    while True:
        try:
            return {
                str(tag): message
                for tag, message in list(qos._delivered.items())  # noqa: SLF001  there is no other list of them
                if tag not in qos._dirty  # noqa: SLF001
            }
        except RuntimeError:  # The worker took or acked one meanwhile.
            continue


class Broker(Protocol):
    """What a broker needs to hear."""

    def __init__(self, channel: Any) -> None: ...

    def visibility(self, queues: list[str]) -> float:
        """Answer the shortest visibility timeout of some queues, in seconds."""
        ...

    def hide(self, messages: dict[str, Any]) -> None:
        """Let the visibility timeout of these messages begin anew; leave acked ones alone."""
        ...


class Redis:
    """kombu's index of unacked messages: when each was delivered, by the worker's clock."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def visibility(self, queues: list[str]) -> float:
        """Answer this worker's setting; another worker restores by its own."""
        del queues
        return of_channel(self._channel) or 0.0

    def hide(self, messages: dict[str, Any]) -> None:
        """Move the entries that are still there: `XX` revives none that was acked meanwhile."""
        with self._channel.conn_or_acquire() as client:
            for tags in batches(messages, REDIS_BATCH):
                now = time.time()
                client.zadd(self._channel.unacked_index_key, dict.fromkeys(tags, now), xx=True)


class Sqs:
    """SQS hides a message anew for its queue's timeout, up to 12 hours after it was received."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._since: dict[str, float] = {}
        self._told: set[str] = set()

    def visibility(self, queues: list[str]) -> float:
        """Ask each time, since an operator may change a queue."""
        return min(
            of_sqs(self._channel, self._channel._resolve_queue_url(name), name)  # noqa: SLF001
            for name in queues
        )

    def hide(self, messages: dict[str, Any]) -> None:
        """Extend by receipt handle, queue by queue."""
        now = time.monotonic()
        self._since = {tag: self._since.get(tag, now) for tag in messages}
        self._told &= messages.keys()
        by_queue: dict[tuple[str, str], list[str]] = {}
        for tag, message in messages.items():
            info = message.delivery_info
            by_queue.setdefault((info["sqs_queue"], info["routing_key"]), []).append(tag)
        for (url, name), tags in by_queue.items():
            self._extend(url, name, tags, of_sqs(self._channel, url, name))

    def _extend(self, url: str, name: str, tags: list[str], visibility: float) -> None:
        now = time.monotonic()
        entries: list[dict[str, Any]] = []
        for tag in tags:
            # It may have been here for a round before it was seen; SQS refuses what is too long.
            left = SQS_LONGEST - (now - self._since[tag]) - visibility / 3
            if left >= 1:
                seconds = int(min(visibility, left))
                entries.append(
                    {"Id": str(len(entries)), "ReceiptHandle": tag, "VisibilityTimeout": seconds}
                )
            elif tag not in self._told:
                self._told.add(tag)
                _log.warning(
                    "SQS hides no message for longer than %.0f h: one of %s, which is still held, "
                    "is delivered again", SQS_LONGEST / 3600, name,
                )  # fmt: skip
        client = self._channel.sqs(queue=self._channel.canonical_queue_name(name))
        for batch in batches(entries, SQS_BATCH):  # What was acked meanwhile is merely refused.
            client.change_message_visibility_batch(QueueUrl=url, Entries=batch)


def batches(items: Iterable[Item], size: int) -> Iterable[list[Item]]:
    """Cut into lists of at most `size`."""
    every = iter(items)
    while batch := list(itertools.islice(every, size)):
        yield batch


_BROKERS: dict[str, type[Broker]] = {"redis": Redis, "sqs": Sqs}
