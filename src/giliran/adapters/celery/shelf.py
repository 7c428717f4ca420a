"""A parked task's message on its way through Redis: written down as text, and published from it."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from functools import lru_cache
from typing import Any

from kombu.exceptions import OperationalError
from kombu.serialization import dumps, loads, prepare_accept_content
from kombu.utils.url import parse_url

from giliran.adapters.celery.headers import CARRIED
from giliran.adapters.celery.message import Message, publish
from giliran.adapters.celery.publish import Publisher


def route(app: Any) -> str:
    """Name the application and its broker: each of its processes can publish its tasks.

    An application's name is not enough: many have none, and what another broker is given is lost.
    """
    urls = app.conf.broker_write_url or ""
    return f"celery:{app.main or ''}:{_brokers(urls if isinstance(urls, str) else ';'.join(urls))}"


@lru_cache(maxsize=8)
def _brokers(urls: str) -> str:
    """Shorten where brokers are, whoever logs in there; the order of alternatives is no matter."""
    places = [parse_url(url) for url in urls.split(";")]
    named = sorted(
        "{transport}://{hostname}:{port}/{virtual_host}".format_map(place) for place in places
    )
    return hashlib.sha256(" ".join(named).encode()).hexdigest()[:12]


def pack(message: Message) -> str:
    """Write a message down as text.

    Raises:
        EncodeError: if its own serializer cannot write it.
    """
    fields = {name: getattr(message, name) for name in Message.__slots__}
    kind, encoding, data = dumps(fields, serializer=message.serializer)  # type: ignore[no-untyped-call]
    raw = data if isinstance(data, bytes) else data.encode()
    return json.dumps([kind, encoding, base64.b64encode(raw).decode()])


def unpack(app: Any, payload: str) -> Message:
    """Read what `pack` wrote, in a serialisation that the application accepts."""
    kind, encoding, data = json.loads(payload)
    accept = prepare_accept_content(app.conf.accept_content)  # type: ignore[no-untyped-call]
    fields: Any = loads(base64.b64decode(data), kind, encoding, accept=accept)  # type: ignore[no-untyped-call]
    return Message(**fields)


def republish(app: Any, publisher: Publisher, payload: str, rank: int, verdict: str) -> None:
    """Publish a parked message, with its place in line and how it is to end.

    Raises:
        ConnectionError: if the broker could not be reached.
    """
    message = unpack(app, payload)
    headers = {**message.headers, CARRIED["rank"]: rank, CARRIED["verdict"]: verdict}
    try:
        publish(app, publisher, replace(message, headers=headers), 0)
    except OperationalError as error:
        raise ConnectionError(str(error)) from error
