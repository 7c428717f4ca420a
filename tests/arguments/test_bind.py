"""Calls are bound by name; lease, `self` and context objects stay out."""

import functools
import inspect
from collections.abc import Callable

import pytest

from giliran.arguments import Arguments

INJECTED = object()


class Context:
    pass


def test_defaults_are_applied() -> None:
    def job(a: int, b: int = 2, *rest: int, c: int = 3, **more: int) -> None: ...

    bound = Arguments(job, INJECTED).bind((1,), {"d": 4})
    assert bound == {"a": 1, "b": 2, "rest": (), "c": 3, "more": {"d": 4}}


def test_the_lease_is_hidden() -> None:
    def job(a: int, lease: object = INJECTED) -> None: ...

    arguments = Arguments(job, INJECTED)
    assert arguments.lease_parameter == "lease"
    assert list(arguments.signature_without_lease.parameters) == ["a"]
    assert arguments.bind((1,), {}) == {"a": 1}


def test_a_function_need_not_ask_for_the_lease() -> None:
    def job() -> None: ...

    assert Arguments(job, INJECTED).lease_parameter is None
    assert Arguments(job, INJECTED).bind((), {}) == {}


def shifting(lease: object = INJECTED, b: int = 1) -> None: ...
def before_rest(lease: object = INJECTED, *rest: int) -> None: ...
def positional(lease: object = INJECTED, /) -> None: ...
def twice(*, lease: object = INJECTED, other: object = INJECTED) -> None: ...


@pytest.mark.parametrize("job", [shifting, before_rest, positional, twice])
def test_a_lease_that_shifts_other_arguments_is_refused(job: Callable[..., None]) -> None:
    with pytest.raises(ValueError, match="make 'lease' the only INJECTED one, keyword-only"):
        Arguments(job, INJECTED)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1, 2), {}), ((1,), {"a": 2}), ((1,), {"z": 2}), ((1,), {"lease": 2})],
)
def test_a_wrong_call_is_a_type_error(args: tuple[int, ...], kwargs: dict[str, int]) -> None:
    def job(a: int, *, lease: object = INJECTED) -> None: ...

    with pytest.raises(TypeError, match=r"job\(\): "):
        Arguments(job, INJECTED).bind(args, kwargs)


@pytest.mark.parametrize("receiver", ["self", "cls"])
def test_the_receiver_of_a_method_stays_out(receiver: str) -> None:
    namespace: dict[str, Callable[..., None]] = {}
    exec(f"def job({receiver}, a): ...", namespace)
    arguments = Arguments(namespace["job"], INJECTED)
    assert arguments.bind((object(), 1), {}) == {"a": 1}
    assert arguments.names == {"a": True}
    assert list(arguments.signature_without_lease.parameters) == [receiver, "a"]


def test_self_is_an_argument_like_others_when_it_is_not_the_first() -> None:
    def job(a: int, cls: str) -> None: ...

    assert Arguments(job, INJECTED).bind((1, "b"), {}) == {"a": 1, "cls": "b"}


def test_context_objects_stay_out() -> None:
    def job(ctx: object, a: int) -> None: ...

    arguments = Arguments(job, INJECTED)
    assert arguments.bind((Context(), 1), {}, is_context=lambda v: isinstance(v, Context)) == {
        "a": 1
    }


def test_names_are_checked_with_a_suggestion() -> None:
    def job(amount: int, **more: int) -> None: ...

    arguments = Arguments(job, INJECTED)
    arguments.check_names(("amount", "more"), where="fingerprint")
    with pytest.raises(
        ValueError, match=r"fingerprint asks .*job\(\) for 'amuont'.* mean 'amount'"
    ):
        arguments.check_names(("amuont",), where="fingerprint")
    with pytest.raises(TypeError, match=r"write a tuple, \('amount',\)"):
        arguments.check_names("amount", where="fingerprint")


def test_partials_and_wrapped_functions_bind_like_what_they_call() -> None:
    def job(a: int, b: int) -> None: ...

    @functools.wraps(job)
    def wrapped(*args: int, **kwargs: int) -> None: ...

    assert Arguments(functools.partial(job, 1), INJECTED).bind((2,), {}) == {"b": 2}
    assert Arguments(wrapped, INJECTED).bind((1, 2), {}) == {"a": 1, "b": 2}


def test_the_visible_signature_keeps_annotations() -> None:
    def job(a: int, *, lease: object = INJECTED) -> str: ...  # type: ignore[empty-body]  # pyright: ignore[reportReturnType]

    signature = Arguments(job, INJECTED).signature_without_lease
    assert signature.return_annotation is str
    assert signature == inspect.signature(job).replace(
        parameters=[inspect.signature(job).parameters["a"]]
    )
