"""A replayed failure is of a listed class, and nothing is ever imported to make it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from giliran.failures import check_failures, decode_failure, encode_failure


class Refused(Exception):
    pass


class Declined(Refused):
    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(f"declined: {code}")


class Sealed(Exception):
    def __init__(self, *, code: str) -> None:
        super().__init__(code)


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def again(error: Exception, *classes: type[Exception]) -> Exception:
    return decode_failure(encode_failure(error, classes), classes)


def test_a_failure_comes_back_with_its_arguments() -> None:
    found = again(KeyError("a", 1), ValueError, KeyError)
    assert type(found) is KeyError
    assert found.args == ("a", 1)


def test_a_failure_with_a_maker_of_its_own_comes_back_as_it_was() -> None:
    found = again(Declined("51"), Declined)
    assert isinstance(found, Declined)
    assert (str(found), found.code) == ("declined: 51", "51")


def test_a_failure_whose_maker_takes_keywords_only_comes_back_too() -> None:
    assert again(Sealed(code="51"), Sealed).args == ("51",)


def test_a_failure_comes_back_as_the_nearest_listed_class() -> None:
    assert type(again(Declined("51"), Exception, Refused)) is Refused
    assert str(again(Declined("51"), Exception, Refused)) == "declined: 51"


def test_arguments_that_are_not_json_become_the_message() -> None:
    assert again(Refused(object, 1.5), Refused).args == (str(Refused(object, 1.5)),)
    assert again(Hostile(object()), Hostile).args == ("",)


def test_a_failure_over_the_limit_becomes_its_beginning() -> None:
    text = encode_failure(Refused("\U0001f600" * 10_000, "x"), (Refused,), 3200)
    assert len(text) <= 3200 + 200
    assert len(decode_failure(text, (Refused,)).args[0]) == 200


def test_a_class_that_is_not_listed_is_refused() -> None:
    with pytest.raises(LookupError, match=r"builtins\.ValueError is not listed"):
        encode_failure(ValueError(), (Refused,))
    text = json.dumps({"class": "os.system", "args": ["true"], "state": {}})
    with pytest.raises(LookupError, match=r"os\.system is not listed"):
        decode_failure(text, (Refused,))


@pytest.mark.parametrize("wrong", ["x", int, BaseException, KeyboardInterrupt])
def test_only_classes_of_ordinary_errors_can_be_listed(wrong: object) -> None:
    check_failures((Refused, ValueError))
    with pytest.raises(TypeError, match="only subclasses of Exception"):
        check_failures((Refused, wrong))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@given(st.lists(st.none() | st.booleans() | st.integers() | st.text()))
def test_plain_arguments_survive(args: list[object]) -> None:
    assert repr(again(Refused(*args), Refused).args) == repr(tuple(args))
