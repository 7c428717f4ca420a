"""Failures that are remembered: exceptions of listed classes as JSON text, and back again."""

import json
from typing import cast

from giliran.results import LIMIT_BYTES, plain, to_json


def check_failures(classes: tuple[type[Exception], ...]) -> None:
    """Refuse, at decoration, what cannot be a list of replayed failures.

    Raises:
        TypeError: It has something else than subclasses of Exception.
    """
    for cls in cast("tuple[object, ...]", classes):
        if not (isinstance(cls, type) and issubclass(cls, Exception)):
            raise TypeError(f"only subclasses of Exception can be replayed, not {cls!r}")


def encode_failure(
    error: Exception, classes: tuple[type[Exception], ...], limit: int = LIMIT_BYTES
) -> str:
    """Return the failure as text, as the nearest of `classes`; what is not JSON becomes a message.

    Raises:
        LookupError: It is an instance of none of `classes`.
    """
    name = next((_name(cls) for cls in type(error).__mro__ if cls in classes), None)
    if name is None:
        raise LookupError(f"{_name(type(error))} is not listed as a failure to replay")
    data = {"class": name, "args": list(error.args), "state": vars(error)}
    try:
        text = to_json(plain(data))
    except Exception:
        text = ""
    if text and len(text) <= limit:
        return text
    try:
        message = str(error)[: limit // 16]  # a character is at most 12 bytes of JSON
    except Exception:
        message = ""
    return to_json({"class": name, "args": [message], "state": {}})


def decode_failure(text: str, classes: tuple[type[Exception], ...]) -> Exception:
    """Return the failure whose text this is: its class, arguments and plain attributes.

    Raises:
        LookupError: Its class is not among `classes`; nothing is ever imported.
    """
    data = json.loads(text)
    cls = next((cls for cls in classes if _name(cls) == data["class"]), None)
    if cls is None:
        raise LookupError(f"{data['class']} is not listed as a failure to replay")
    args = tuple(data["args"])
    try:
        error = cls(*args)
    except Exception:
        error = cls.__new__(cls)
    if error.args != args:  # its maker takes other things, like `Declined(code)` with a sentence
        error = cls.__new__(cls)
        error.args = args
    error.__dict__.update(data["state"])
    return error


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
