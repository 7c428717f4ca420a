"""What a repeat must agree on: a digest of a call's arguments."""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, cast
from uuid import UUID

_LEAVES: tuple[tuple[type, Callable[[Any], object]], ...] = (
    (bytes, bytes.hex),
    (datetime, datetime.isoformat),  # before date, which it also is
    (date, date.isoformat),
    (time, time.isoformat),
    (timedelta, lambda delta: [delta.days, delta.seconds, delta.microseconds]),
    (UUID, str),
    (Decimal, str),  # NaN too: unlike floats it is one text
)


def fingerprint(bound: Mapping[str, object], names: tuple[str, ...] | None = None) -> str:
    """Return a digest that is the same for the same arguments and differs for different ones.

    `names` are the arguments that matter; by default all. A list and a tuple are the same, because
    queues turn one into the other; 1, 1.0, True and "1" differ, and so do a date and its text.

    Raises:
        TypeError: An argument has no canonical form.
    """
    chosen: dict[str, object] = {}
    for name in bound if names is None else names:
        if name not in bound:
            raise TypeError(f"argument {name!r} is the queue's context, never in a fingerprint")
        try:
            chosen[name] = _canonical(bound[name])
        except (TypeError, RecursionError) as error:
            raise TypeError(
                f"argument {name!r} has no canonical form, because of {error}: name the arguments"
                f" that matter with fingerprint=(...)"
            ) from None
    return f"1:{hashlib.sha256(_json(chosen).encode()).hexdigest()}"


def _canonical(value: object) -> object:
    """Return JSON data that differs where values differ: every JSON object is a tag."""
    kind = type(value).__name__
    if isinstance(value, Enum) and not isinstance(value, (str, int)):
        return {"Enum": [kind, _canonical(value.value)]}
    if isinstance(value, float) and not math.isfinite(value):
        raise TypeError(f"the float {value}")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_canonical(item) for item in cast("Iterable[object]", value)]
    if isinstance(value, (set, frozenset)):
        return {"set": sorted(map(_canonical, cast("Iterable[object]", value)), key=_json)}
    if isinstance(value, dict):
        return {"dict": _canonical_items(cast("dict[object, object]", value))}
    return _canonical_object(value, kind)


def _canonical_object(value: object, kind: str) -> object:
    for leaf, text in _LEAVES:
        if isinstance(value, leaf):
            return {leaf.__name__: text(value)}
    if is_dataclass(value) and not isinstance(value, type):
        items = {field.name: getattr(value, field.name) for field in fields(value)}
        return {"dataclass": [kind, _canonical_items(items)]}
    dump = getattr(value, "model_dump", None)  # pydantic's, without asking for pydantic
    if callable(dump) and not isinstance(value, type):
        return {"model": [kind, _canonical(dump(mode="json"))]}
    raise TypeError(f"a value of type {kind}")


def _canonical_items(items: Mapping[Any, object]) -> object:
    if not all(isinstance(key, str) for key in items):
        raise TypeError("a dict whose keys are not all str")
    return {key: _canonical(item) for key, item in items.items()}


def _json(data: object) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
