"""Keys name the resource: wrong definitions fail early, different arguments never share a key."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from giliran.arguments import (
    KEY_BYTES_MAX,
    Arguments,
    KeySource,
    KeyTemplate,
    encode,
    scoped,
    validate_key,
    whole_function,
)

INJECTED = object()


def refund(order_id: object, tenant: object = "t", *rest: object, **more: object) -> None: ...


def template(source: KeySource, function: Callable[..., object] = refund) -> KeyTemplate:
    return KeyTemplate.compile(source, Arguments(function, INJECTED))


class Level(enum.IntEnum):
    LOW = 1


class Color(enum.StrEnum):
    RED = "red:dark"


class Plain(enum.Enum):
    ONE = "one"
    FLAG = True


@dataclass
class Order:
    id: int


class Shouting(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "!"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (42, "42"),
        ("42", "42"),
        (-7, "-7"),
        ("a:b", "a%3Ab"),
        ("100%", "100%25"),
        ("{x}", "%7Bx%7D"),
        ("a b\r\n\x00\x7f", "a%20b%0D%0A%00%7F"),
        ("\x85\u2028", "%C2%85%E2%80%A8"),
        ("café", "café"),
        (Shouting("quiet"), "quiet"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "2026-01-02T03%3A04%3A00+00%3A00"),
        (Decimal("1.50"), "1.50"),
        (Level.LOW, "1"),
        (Color.RED, "red%3Adark"),
        (Plain.ONE, "one"),
    ],
)
def test_a_value_enters_a_key_as_its_text(value: object, text: str) -> None:
    assert template("lock:order:{order_id}")({"order_id": value}) == f"lock:order:{text}"


@pytest.mark.parametrize(
    "value",
    [
        True,
        Plain.FLAG,
        1.0,
        None,
        b"x",
        object(),
        [1],
        {"a": 1},
        {1},
        (1,),
        Order(1),
        Decimal("NaN"),
        Order,
    ],
)
def test_a_value_without_one_text_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"argument 'order_id' of refund\(\) is of type .* pass an"):
        template("lock:order:{order_id}")({"order_id": value})


@pytest.mark.parametrize(
    ("value", "message"),
    [("", "is empty"), ("\ud800", "lone surrogate at position 0"), ("x" * 600, "bytes, more than")],
)
def test_a_text_that_names_nothing_is_refused(value: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        template("lock:order:{order_id}")({"order_id": value})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("lock:{order_id.__class__}", "no attribute, index, conversion or format"),
        ("lock:{order_id[0]}", "no attribute, index"),
        ("lock:{order_id!r}", "no attribute, index"),
        ("lock:{order_id:>3}", "no attribute, index"),
        ("lock:{}", "no attribute, index"),
        ("lock:{0}", "no attribute, index"),
        ("lock:{order_id", "single '{' at position 5"),
        ("lock:order_id}", "single '}' at position 13"),
        ("lock:{order_id}}", "single '}' at position 15"),
        ("lock:{ordr_id}", "did you mean 'order_id'"),
        ("lock:{zzz}", r"asks refund\(\) for 'zzz', which it lacks \(usable: order_id, tenant\)"),
        ("lock:{more}", "which cannot take part"),
        ("lock:{rest}", "which cannot take part"),
        ("lock:nightly", r"whole_function\('the key'\)"),
        ("", "the key is empty"),
        ("lock: {order_id}", "space or control"),
        ("lock:{{}}:{order_id}", "not one hash tag"),
        ("{{a}}:{{b}}:{order_id}", "not one hash tag"),
        ("}}a{{:{order_id}", "not one hash tag"),
        ("{{:{order_id}", "not one hash tag"),
        ("l:{tenant}{order_id}", "run into each other"),
        ("l:{tenant}-{order_id}", "run into each other"),
        ("l:{tenant}%3A{order_id}", "run into each other"),
        ("x" * 600 + "{order_id}", "bytes, more than"),
    ],
)
def test_a_wrong_template_fails_at_decoration(source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        template(source)


def test_what_is_no_template_fails_at_decoration() -> None:
    with pytest.raises(TypeError, match="a key is a template or a function, not int"):
        template(42)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("hidden", ["self", "lease"])
def test_lease_and_self_never_enter_a_key(hidden: str) -> None:
    def method(self: object, order_id: int, *, lease: object = INJECTED) -> None: ...

    with pytest.raises(ValueError, match=r"cannot take part .*\(usable: order_id\)"):
        template(f"lock:{{{hidden}}}", method)


def test_a_context_object_in_a_template_is_refused() -> None:
    with pytest.raises(TypeError, match="the queue's context"):
        template("lock:{order_id}")({})


def test_doubled_braces_make_a_hash_tag() -> None:
    bound = {"order_id": "4}2", "tenant": "acme"}
    assert template("lock:{{order}}:{order_id}")(bound) == "lock:{order}:4%7D2"
    assert template("{{{tenant}}}:{order_id}")(bound) == "{acme}:4%7D2"


def test_whole_function_says_that_no_argument_matters() -> None:
    assert template(whole_function("lock:nightly"))({"order_id": object()}) == "lock:nightly"
    with pytest.raises(ValueError, match="space or control"):
        whole_function("lock nightly")


def test_a_function_makes_the_key_from_the_arguments_it_names() -> None:
    made = template(lambda order_id, *, tenant: f"{tenant}:{order_id.id}")
    assert made({"order_id": Order(7), "tenant": "acme"}) == "acme:7"


def test_a_wrong_key_function_fails_at_decoration() -> None:
    with pytest.raises(
        ValueError, match=r"key function .*<lambda>\(\) asks refund\(\) for 'ordr_id'"
    ):
        template(lambda ordr_id: f"{ordr_id}")
    with pytest.raises(ValueError, match="must name the arguments"):
        template(lambda **kwargs: f"{kwargs}")
    with pytest.raises(ValueError, match="whole_function"):
        template(lambda: "lock:nightly")


@pytest.mark.parametrize(
    ("made", "error"), [(None, TypeError), (b"k", TypeError), ("", ValueError), ("a b", ValueError)]
)
def test_a_key_function_returns_a_valid_key(made: object, error: type[Exception]) -> None:
    def name_of(order_id: object) -> object:
        return made

    with pytest.raises(error, match=r"the key of key function .*name_of\(\)"):
        template(name_of)({"order_id": 1})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("key", ["lock:order:42", "a", "{a}", "x{a}y", "%7B", "é" * 256])
def test_a_valid_key_is_taken_as_it_stands(key: str) -> None:
    assert validate_key(key) == key


@pytest.mark.parametrize(
    "key",
    [
        "",
        "a b",
        "a\n",
        "\x00",
        "\u2029",
        "{}x",
        "x{}{a}",
        "{{a}}",
        "a}b",
        "{a",
        "}{",
        "\ud800",
        "é" * 257,
    ],
)
def test_an_invalid_key_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="the key"):
        validate_key(key)


def test_the_error_of_a_long_key_says_size_and_limit_but_not_all_of_it() -> None:
    with pytest.raises(ValueError, match="has 1000000 bytes, more than 512: use an id") as caught:
        validate_key("k" * 1_000_000)
    assert len(str(caught.value)) < 300


def test_a_scope_keeps_tenants_apart() -> None:
    assert scoped("lock:1", None) == "lock:1"
    assert scoped("lock:1", "acme:eu") == "acme%3Aeu:lock:1"
    assert scoped("lock:{a}:1", "{x}") == "%7Bx%7D:lock:{a}:1"
    with pytest.raises(ValueError, match="scope is empty"):
        scoped("lock:1", "")
    with pytest.raises(ValueError, match="the scope has a lone surrogate"):
        scoped("lock:1", "\udfff")


hostile = st.text(
    st.sampled_from("ab:%{}-3A\x00 é") | st.characters(codec="utf-8"), min_size=1, max_size=6
)
pairs = st.tuples(hostile, hostile)


@given(pairs, pairs)
@example(("1:2", "3"), ("1", "2:3"))
@example(("a%3A", "b"), ("a:", "b"))
def test_different_texts_never_share_a_key(one: tuple[str, str], two: tuple[str, str]) -> None:
    for source in ("u:{tenant}:{order_id}", "u:{tenant}a:b{order_id}", "{{{tenant}}}{order_id}"):
        made = template(source)
        keys = [made({"tenant": t, "order_id": o}) for t, o in (one, two)]
        assert (keys[0] == keys[1]) == (one == two)


@given(hostile, hostile)
def test_no_value_moves_or_breaks_the_hash_tag(tenant: str, order_id: str) -> None:
    key = template("{tenant}:{{orders}}:{order_id}")({"tenant": tenant, "order_id": order_id})
    assert key[key.index("{") : key.index("}") + 1] == "{orders}"
    assert validate_key(key) == key


@given(hostile, hostile, st.text("ab{}:%", max_size=4))
def test_scopes_never_meet(one: str, two: str, rest: str) -> None:
    assert (scoped(f"k{encode(rest)}", one) == scoped(f"k{encode(rest)}", two)) == (one == two)


@given(st.text(st.characters(codec="utf-8")))
def test_encoded_text_is_a_safe_part_of_a_key(text: str) -> None:
    encoded = encode(text)
    assert not set(encoded) & set(":{} \x00\n\u2028")
    if encoded and len(encoded.encode()) <= KEY_BYTES_MAX:
        assert validate_key(encoded) == encoded
