"""A fingerprint is the same for the same arguments, at all times, and differs for others."""

import enum
import hashlib
import itertools
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from giliran.fingerprints import fingerprint


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    ONE = 1


@dataclass
class Point:
    x: object


@dataclass
class Spot:
    x: object


class Model(pydantic.BaseModel):
    x: date | int


def of(value: object) -> str:
    return fingerprint({"a": value})


DISTINCT: list[object] = [
    None, True, False, 0, 1, 2, 0.0, 1.0, 1.5, "", "1", "None", b"", b"1", [], [1], ["1"], [[1]],
    [1, 2], [2, 1], {}, {"a": 1}, {"a": "1"}, {"b": 1}, {"set": [1]}, {"date": "2026-01-02"},
    set(), {1}, {1, 2}, date(2026, 1, 2), "2026-01-02", datetime(2026, 1, 2),  # noqa: DTZ001
    datetime(2026, 1, 2, tzinfo=UTC), time(1, 2), timedelta(1), timedelta(0, 1), Decimal(1),
    Decimal("1.0"), Decimal("1E+999999"), UUID(int=1), str(UUID(int=1)), Color.RED, Color.BLUE,
    Point(1), Point(2), Spot(1), Model(x=1), Model(x=2), Model(x=date(2026, 1, 2)),
]  # fmt: skip


def test_different_values_have_different_fingerprints() -> None:
    for one, two in itertools.combinations(DISTINCT, 2):
        assert of(one) != of(two), (one, two)


def test_a_fingerprint_never_changes() -> None:
    """Records of an older release must still match."""
    bound = {"b": [1, "é", None, {"k": (2.5, True)}], "a": {Decimal("1.0"), UUID(int=3)}}
    canonical = (
        b'{"a":{"set":[{"Decimal":"1.0"},{"UUID":"00000000-0000-0000-0000-000000000003"}]},'
        b'"b":[1,"\\u00e9",null,{"dict":{"k":[2.5,true]}}]}'
    )
    golden = f"1:{hashlib.sha256(canonical).hexdigest()}"
    assert fingerprint(bound) == golden
    assert fingerprint(dict(reversed(bound.items()))) == golden


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ((1, 2), [1, 2]),
        ({1, "a", None}, frozenset([None, "a", 1])),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (Level.ONE, 1),
    ],
)
def test_what_a_queue_may_change_does_not_count(one: object, two: object) -> None:
    assert of(one) == of(two)


def test_only_the_named_arguments_count() -> None:
    assert fingerprint({"a": 1, "b": object()}, ("a",)) == fingerprint({"a": 1})
    assert fingerprint({"a": 1}, ()) == fingerprint({})
    with pytest.raises(TypeError, match="argument 'ctx' is the queue's context"):
        fingerprint({"a": 1}, ("ctx",))


def circle() -> list[object]:
    items: list[object] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    "value",
    [
        object(),
        [object()],
        {"a": lambda: 1},
        {1: 2},
        float("nan"),
        [float("inf")],
        Point,
        circle(),
        bytearray(),
    ],
)
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(
        TypeError, match=r"argument 'a' has no canonical form.*fingerprint=\(\.\.\.\)"
    ):
        of(value)


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4) | st.binary(max_size=4) | st.dates() | st.decimals(allow_nan=False)
)  # fmt: skip
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def typed(value: Any) -> object:
    """Compare by type and text too: to Python, 1, 1.0 and True are equal."""
    if isinstance(value, list):
        return [typed(item) for item in value]
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    return type(value), repr(value)


@given(trees, trees)
def test_fingerprints_are_equal_exactly_when_the_arguments_are(one: object, two: object) -> None:
    assert (of(one) == of(two)) == (typed(one) == typed(two))


@given(st.dictionaries(st.text(max_size=3), scalars, max_size=5), st.randoms())
def test_order_of_arguments_does_not_count(bound: dict[str, object], luck: Any) -> None:
    shuffled = list(bound.items())
    luck.shuffle(shuffled)
    assert fingerprint(bound) == fingerprint(dict(shuffled))
