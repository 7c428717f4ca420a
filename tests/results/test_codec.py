"""What a repeat gets is what the first run returned, or nothing was kept; never something else."""

import enum
import typing
from collections import namedtuple
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    Union,
    cast,
)
from uuid import UUID

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from giliran.results import Codec, codec_for


class Color(enum.Enum):
    RED = object()


class Size(enum.StrEnum):
    BIG = "big"


class Way(enum.Flag):
    UP = 1
    LEFT = 2


@dataclass(frozen=True, slots=True)
class Money:
    amount: Decimal
    currency: Literal["EUR", "USD"] = "EUR"


@dataclass(kw_only=True)
class Receipt:
    id: UUID
    paid: Money | None
    lines: "list[Receipt]" = field(default_factory=list)


class Pair(NamedTuple):
    left: int
    right: date


class Answer(TypedDict):
    ok: bool
    at: NotRequired[datetime]


class Model(pydantic.BaseModel):
    when: date
    name: str = pydantic.Field(alias="Name")


class Secretive(pydantic.BaseModel):
    token: str = pydantic.Field(exclude=True, default="")


OrderId = NewType("OrderId", int)
untyped = namedtuple("untyped", "a")  # noqa: PYI024  # pyright: ignore[reportUntypedNamedTuple]

NOW = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
MONEY = Money(Decimal("1.50"))
RECEIPT = Receipt(id=UUID(int=1), paid=MONEY, lines=[Receipt(id=UUID(int=2), paid=None)])


def codec(annotation: object, limit: int = 65536) -> Codec:
    def job() -> None: ...

    job.__annotations__["return"] = annotation
    return codec_for(job, limit=limit)


def again(annotation: object, value: object) -> object:
    made = codec(annotation)
    stored = made.encode(value)
    assert stored.text is not None, stored.why
    return made.decode(stored.text)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (None, None),
        (bool, True),
        (int, 2**70),
        (float, 1.5),
        (float, 1),
        (str, "é\ud800"),
        (Any, {"a": [1, None, 2.5, "x"]}),
        (object, [1]),
        (dict, {"a": 1}),
        (list, [1, "a"]),
        (typing.List, [1]),  # noqa: UP006
        (list[int], [1, 2]),
        (Sequence[int], [1, 2]),
        (tuple, (1, "a")),
        (tuple[int, ...], (1, 2)),
        (tuple[int, str], (1, "a")),
        (tuple[()], ()),
        (set[int], {1, 2}),
        (frozenset[date], frozenset([date(2026, 1, 2)])),
        (dict[str, date], {"a": date(2026, 1, 2)}),
        (dict[int, str], {1: "a"}),
        (Mapping[UUID, int], {UUID(int=1): 1}),
        (int | None, None),
        (Optional[date], date(2026, 1, 2)),  # noqa: UP045
        (Optional[date], None),  # noqa: UP045
        (Union[str, date], "2026-01-02"),  # noqa: UP007
        (str | date, date(2026, 1, 2)),
        (date | datetime, NOW),
        (list[int] | dict[str, int] | None, {"a": 1}),
        (Literal["a", 1] | None, None),
        (Literal["a", True], True),
        (Literal[Size.BIG], Size.BIG),
        (Annotated[date, "x"], date(2026, 1, 2)),
        (OrderId, 42),
        (datetime, NOW),
        (time, time(1, 2)),
        (timedelta, timedelta(-1, 2, 3)),
        (UUID, UUID(int=1)),
        (Decimal, Decimal("1.50")),
        (bytes, b"\x00\xff"),
        (Color, Color.RED),
        (Size, Size.BIG),
        (Way, Way.UP),
        (Money, MONEY),
        (list[Receipt], [RECEIPT]),
        (Pair, Pair(1, date(2026, 1, 2))),
        (untyped, untyped(1)),
        (Answer, {"ok": True}),
        (Answer, {"ok": True, "at": NOW}),
        (Model, Model(when=date(2026, 1, 2), Name="x")),
        (dict[str, Model | Money], {"a": MONEY, "b": Model(when=date(2026, 1, 2), Name="x")}),
        (Awaitable[date], date(2026, 1, 2)),
        (Coroutine[Any, Any, date], date(2026, 1, 2)),
    ],
)
def test_a_result_comes_back_equal_and_of_its_type(annotation: object, value: object) -> None:
    found = again(annotation, value)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, "1"),
        (int, None),
        (None, 1),
        (date, NOW),
        (bool, 1),
        (float, float("nan")),
        (Any, (1, 2)),
        (Any, MONEY),
        (Any, {1: 2}),
        (Any, date(2026, 1, 2)),
        (dict, [1]),
        (list[int], (1,)),
        (list[int], ["a"]),
        (tuple[int, str], (1,)),
        (Literal["a", 1], True),
        (Way, Way.UP | Way.LEFT),
        (str | date, 1),
        (date | None, 1),
        (Money, Receipt(id=UUID(int=1), paid=None)),
        (Money, Money(Decimal(1), "GBP")),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (Answer, {"at": NOW}),
        (Answer, {"ok": True, "more": 1}),
        (Model, Secretive()),
        (Secretive, Secretive(token="t")),
    ],
)
def test_what_would_come_back_different_is_not_kept(annotation: object, value: object) -> None:
    stored = codec(annotation).encode(value)
    assert stored.text is None
    assert "the result" in stored.why


def test_why_a_result_is_not_kept_tells_no_secret() -> None:
    assert "hunter2" not in codec(int).encode("hunter2").why
    assert "hunter2" not in codec(Secretive).encode(Secretive(token="hunter2")).why


def test_a_result_over_the_limit_is_not_kept() -> None:
    assert codec(str, 10).encode("x" * 8).text == '"xxxxxxxx"'
    stored = codec(str, 10).encode("x" * 9)
    assert (stored.text, stored.why) == (None, "the result has 11 bytes, more than 10")
    with pytest.raises(ValueError, match="at least 1"):
        codec(str, 0)


def test_a_result_that_contains_itself_is_not_kept() -> None:
    circle: list[object] = []
    circle.append(circle)
    assert codec(Any).encode(circle).why == "the result cannot be stored: RecursionError"


@dataclass
class Seeded:
    x: int
    seed: InitVar[int] = 0


@dataclass
class Derived:
    x: int
    y: int = field(init=False, default=0)


@dataclass
class Holds:
    x: Iterator[int]


@pytest.mark.parametrize(
    "annotation",
    [
        Iterator[int], Callable[[], int], type, complex, Seeded, Derived, Holds, list[complex],
        dict[str, Holds], int | complex, Literal[b"x"], typing.TypeVar("T"),
    ],
)  # fmt: skip
def test_what_cannot_be_rebuilt_is_refused_at_decoration(annotation: object) -> None:
    with pytest.raises(
        TypeError, match=r"job\(\) promises to replay its result, but .* annotate it"
    ):
        codec(annotation)


def test_a_job_without_annotation_returns_plain_json() -> None:
    def job() -> None: ...

    del job.__annotations__["return"]
    made = codec_for(job)
    assert made.decode(made.encode({"a": 1}).text or "") == {"a": 1}


async def later() -> "Later": ...  # type: ignore[empty-body]  # pyright: ignore[reportReturnType]


FORWARD = codec_for(later)


@dataclass
class Later:
    x: date


def test_an_annotation_may_name_what_is_defined_later() -> None:
    value = Later(date(2026, 1, 2))
    assert FORWARD.decode(FORWARD.encode(value).text or "") == value


def never() -> "Missing": ...  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportReturnType, reportUndefinedVariable]


def test_an_annotation_that_names_nothing_keeps_nothing() -> None:
    assert codec_for(never).encode(1).why == "the result cannot be stored: NameError"
    with pytest.raises(ValueError, match="does not fit the return annotation: NameError"):
        codec_for(never).decode("1")


def test_only_the_return_annotation_is_resolved() -> None:
    def job(a: "Missing") -> int: ...  # type: ignore[empty-body, name-defined]  # noqa: F821  # pyright: ignore[reportReturnType, reportUndefinedVariable]

    assert codec_for(job).encode(1).text == "1"


@pytest.mark.parametrize(
    ("annotation", "text"),
    [(int, '"1"'), (date, "5"), (Money, "{}"), (Answer, "{}"), (list[int], "[null]"), (int, "{"),
     (Money, '{"amount":"1","other":1}'), (Color, '"BLUE"'), (str | date, "[7,1]")],
)  # fmt: skip
def test_a_text_that_does_not_fit_is_a_value_error(annotation: object, text: str) -> None:
    with pytest.raises(ValueError, match="does not fit the return annotation"):
        codec(annotation).decode(text)


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
plain = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(plain)
def test_plain_json_survives(value: object) -> None:
    assert repr(again(Any, value)) == repr(value)


@given(st.lists(st.dates() | st.none() | st.text() | st.datetimes() | st.decimals(allow_nan=False)))
def test_unions_survive(value: list[object]) -> None:
    found = again(list[str | date | datetime | Decimal | None], value)
    assert found == value
    assert [type(item) for item in cast("list[object]", found)] == [type(item) for item in value]
