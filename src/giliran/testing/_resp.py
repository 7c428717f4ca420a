"""Where requests and replies end in a stream of RESP2 or RESP3 bytes."""

from __future__ import annotations

_LINES = b"+-:_,#("
_BULKS = b"$=!"
_AGGREGATES = {ord("*"): 1, ord("~"): 1, ord(">"): 1, ord("%"): 2, ord("|"): 2}


class Splitter:
    """Collects bytes and gives them back in whole messages, unchanged."""

    def __init__(self, *, requests: bool = False) -> None:
        self._end = _request_end if requests else _reply_end
        self._buffer = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes; return the messages that are complete now."""
        self._buffer += data
        messages: list[bytes] = []
        start = 0
        while (end := self._end(self._buffer, start)) is not None:
            messages.append(self._buffer[start:end])
            start = end
        self._buffer = self._buffer[start:]
        return messages

    def rest(self) -> bytes:
        """Return and forget the bytes of the message that is not complete yet."""
        rest, self._buffer = self._buffer, b""
        return rest


def is_push(reply: bytes) -> bool:
    """Say whether this is an out-of-band message of RESP3, which answers no request."""
    return reply.startswith(b">")


def _line_end(data: bytes, start: int) -> int | None:
    end = data.find(b"\r\n", start)
    return None if end < 0 else end + 2


def _request_end(data: bytes, start: int) -> int | None:
    if data[start : start + 1] == b"*":
        return _reply_end(data, start)
    end = data.find(b"\n", start)  # an inline command
    return None if end < 0 else end + 1


def _reply_end(data: bytes, start: int) -> int | None:
    position, missing = start, 1
    while missing:
        end = _line_end(data, position)
        if end is None:
            return None
        kind, missing = data[position], missing - 1
        if kind in _BULKS:
            length = int(data[position + 1 : end])
            end += length + 2 if length >= 0 else 0
            if end > len(data):
                return None
        elif kind in _AGGREGATES:
            missing += max(int(data[position + 1 : end]), 0) * _AGGREGATES[kind]
            missing += kind == ord("|")  # attributes come before the reply they belong to
        elif kind not in _LINES:
            raise AssertionError(f"not RESP: {data[position : position + 40]!r}")
        position = end
    return position
