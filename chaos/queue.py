"""A minimal reliable queue on Redis: at least once, whatever dies.

A message lies in exactly one of: the ready list, the delayed set, the in-flight list of one worker.
Every change is one Lua script that may be sent again. A worker that shows no sign of life for
`ALIVE` seconds loses its in-flight list to the others, and may find out only later.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from giliran.jobs import Carried

ALIVE = 2.0
PREFIX = "chaos:queue:"
MESSAGES, READY, DELAYED, WORKERS = (
    PREFIX + name for name in ("messages", "ready", "delayed", "workers")
)
IN_FLIGHT, SIGN = PREFIX + "in-flight:", PREFIX + "alive:"

_TEXTS = {
    name: (Path(__file__).parent / "scripts" / f"{name}.lua").read_text("utf-8")
    for name in ("enqueue", "fetch", "ack", "recover")
}
SHAS = {
    name: hashlib.sha1(text.encode()).hexdigest()  # noqa: S324  Redis' own id
    for name, text in _TEXTS.items()
}

Unanswered = (redis.ConnectionError, redis.TimeoutError, redis.ResponseError, OSError)


def fresh_id() -> str:
    """Make an id that nobody else has."""
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        task: the name of the function.
        args: its arguments.
        job: the job's id, for people and for the checker.
        publication: what its copies have in common.
        carried: what a guard wants back with the next delivery.
        id: this copy's own id.
    """

    task: str
    args: dict[str, Any]
    job: str = field(default_factory=fresh_id)
    publication: str = field(default_factory=fresh_id)
    carried: Carried = field(default_factory=Carried)
    id: str = field(default_factory=fresh_id)

    def dumps(self) -> str:
        """Write it as text."""
        return json.dumps(asdict(self))

    @staticmethod
    def loads(text: str) -> Message:
        """Read what `dumps` wrote."""
        fields: dict[str, Any] = json.loads(text)
        fields["carried"] = Carried(**fields["carried"])
        return Message(**fields)


class RedisQueue:
    """One end of the queue. Every method raises one of `Unanswered` when the broker is away.

    Args:
        url: where the broker is.
        worker: the name of the worker that fetches; "" for a producer.
    """

    def __init__(self, url: str, worker: str = "") -> None:
        self._worker = worker
        self._in_flight = IN_FLIGHT + worker
        # Never re-sent by the client: whoever calls decides.
        self._client: Any = redis.Redis.from_url(
            url,
            socket_timeout=1.0,
            socket_connect_timeout=1.0,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )

    def enqueue(self, message: Message, delay: float = 0.0) -> None:
        """Hand a message to the broker; again with the same message is harmless."""
        keys = (MESSAGES, READY, DELAYED)
        self._run("enqueue", keys, message.id, message.dumps(), int(delay * 1000))

    def fetch(self) -> tuple[Message, bool] | None:
        """Take a message, and tell whether this worker had it before."""
        keys = (MESSAGES, READY, DELAYED, self._in_flight, WORKERS, SIGN + self._worker)
        reply = self._run("fetch", keys, self._worker, int(ALIVE * 1000))
        return None if reply is None else (Message.loads(reply[1]), bool(reply[2]))

    def ack(self, message: Message) -> None:
        """Let the broker forget a message."""
        self._run("ack", (MESSAGES, self._in_flight), message.id)

    def recover(self) -> int:
        """Give messages of dead workers to the living; answers how many."""
        return int(self._run("recover", (WORKERS, READY), IN_FLIGHT, SIGN))

    def messages(self) -> list[Message]:
        """Read all messages that are not acked."""
        return [Message.loads(text) for text in self._client.hvals(MESSAGES)]

    def size(self) -> int:
        """Count the messages that are not acked."""
        return int(self._client.hlen(MESSAGES))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _run(self, name: str, keys: tuple[str, ...], *args: str | int) -> Any:
        try:
            return self._client.evalsha(SHAS[name], len(keys), *keys, *args)
        except exceptions.NoScriptError:
            return self._client.eval(_TEXTS[name], len(keys), *keys, *args)


def insist(send: Callable[[], None], tries: int, pause: float = 0.1) -> None:
    """Send until it is answered; raise what the last of so many tries raised."""
    for last in (*[False] * (tries - 1), True):
        try:
            return send()
        except Unanswered:
            if last:
                raise
            time.sleep(pause)
    return None
