"""Keys and fingerprints from the arguments of a call.

Two calls get one key exactly when the *text* of the arguments in it is the same. What a definition
gets wrong fails at decoration; what an argument gets wrong fails before Redis is asked.
"""

import difflib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

KEY_BYTES_MAX: Final = 512

_CONTROL = r"\x00-\x20\x7f-\x9f\u2028\u2029"  # and the space
_REFUSED = re.compile(f"[{_CONTROL}]")
_ESCAPED = re.compile(f"[%:{{}}{_CONTROL}]")
_TEMPLATE_PART = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}]*)\}|[{}]|[^{}]+")
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Arguments:
    """Binds the calls of one function by name, without its lease and its `self` or `cls`.

    The default value `injected` marks the parameter that receives the lease.

    Raises:
        ValueError: Hiding the lease parameter would shift the arguments that follow it.
    """

    __slots__ = ("_receiver", "function", "lease_parameter", "names", "signature_without_lease")

    def __init__(self, function: Callable[..., object], injected: object) -> None:
        signature = _signature(function)
        parameters = list(signature.parameters.values())
        visible = [p for p in parameters if p.default is not injected]
        self.function: str = getattr(function, "__qualname__", None) or repr(function)
        self.lease_parameter = self._lease(parameters, injected)
        self.signature_without_lease = signature.replace(parameters=visible)
        first = visible[0].name if visible else None
        self._receiver = first if first in {"self", "cls"} else None
        # All of them may enter a fingerprint; into a key go only those that are one argument.
        self.names = {p.name: p.kind not in _VARIADIC for p in visible if p.name != self._receiver}

    def bind(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        is_context: Callable[[object], bool] | None = None,
    ) -> dict[str, object]:
        """Return the arguments of a call by name, with defaults.

        Values for which `is_context` is true (a queue's context objects) are left out.

        Raises:
            TypeError: The function cannot be called like this.
        """
        try:
            bound = self.signature_without_lease.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.function}(): {error}") from None
        bound.apply_defaults()
        return {
            name: value
            for name, value in bound.arguments.items()
            if name != self._receiver and not (is_context and is_context(value))
        }

    def check_names(self, names: Iterable[str], *, where: str, in_key: bool = False) -> None:
        """Refuse what is no argument, for `where`; `in_key` refuses `*args` and `**kwargs` too.

        Raises:
            TypeError: `names` is one string.
            ValueError: A name is not there; the message says which are.
        """
        if isinstance(names, str):
            raise TypeError(f"{where} is the string {names!r}: write a tuple, ({names!r},)")
        usable = [name for name, single in self.names.items() if single or not in_key]
        for name in (name for name in names if name not in usable):
            never = name in self.names or name in (self.lease_parameter, self._receiver)
            why = "which cannot take part" if never else "which it lacks"
            near = difflib.get_close_matches(name, usable, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            has = ", ".join(usable) or "none"
            raise ValueError(
                f"{where} asks {self.function}() for {name!r}, {why}{hint} (usable: {has})"
            )

    def _lease(self, parameters: list[inspect.Parameter], injected: object) -> str | None:
        at = [i for i, parameter in enumerate(parameters) if parameter.default is injected]
        if not at:
            return None
        lease, after = parameters[at[0]], parameters[at[0] + 1 :]
        # Kinds are ordered: what is given by position comes before what is given by keyword.
        followed = any(p.kind < inspect.Parameter.KEYWORD_ONLY for p in after)
        if len(at) > 1 or followed or lease.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ValueError(
                f"the lease goes to one argument of {self.function}() and none may follow it by"
                f" position: make {lease.name!r} the only INJECTED one, keyword-only (after '*')"
            )
        return lease.name


def _signature(function: Callable[..., object]) -> inspect.Signature:
    if sys.version_info >= (3, 14):  # there annotations are evaluated late, maybe not yet
        from annotationlib import Format  # noqa: PLC0415

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


@dataclass(frozen=True, slots=True)
class whole_function:  # noqa: N801 (written like a function: `exclusive(whole_function("nightly"))`)
    """One key for every call of a function, whatever its arguments: said on purpose."""

    key: str

    def __post_init__(self) -> None:
        validate_key(self.key)


KeySource = str | whole_function | Callable[..., str]


@dataclass(frozen=True, slots=True)
class KeyTemplate:
    """Makes the key of one call from its bound arguments."""

    text: str  # as written, or the name of the function that makes the key
    _make: Callable[[Mapping[str, object]], str]

    @classmethod
    def compile(cls, source: KeySource, arguments: Arguments) -> "KeyTemplate":
        """Check `source` against the function once, at decoration.

        `source` is a template with `{name}` fields (`{{` and `}}` are literal braces, a pair of
        them a Redis Cluster hash tag), a function of some of the arguments that returns the key,
        or `whole_function(...)`.

        Raises:
            TypeError: `source` is none of these.
            ValueError: It gives no valid key, or could give one key to different arguments.
        """
        if isinstance(source, whole_function):
            key = source.key
            return cls(key, lambda _: key)
        if isinstance(source, str):
            return cls(source, _from_template(source, arguments))
        if not callable(source):
            raise TypeError(f"a key is a template or a function, not {type(source).__name__}")
        name = getattr(source, "__qualname__", None) or repr(source)
        return cls(name, _from_function(source, f"key function {name}()", arguments))

    def __call__(self, bound: Mapping[str, object]) -> str:
        """Return the key of this call.

        Raises:
            TypeError: An argument is of a type that has no text of its own.
            ValueError: An argument is empty, or the key is not valid.
        """
        return self._make(bound)


def _from_template(text: str, arguments: Arguments) -> Callable[[Mapping[str, object]], str]:
    parts = list(_parse(text))
    names = [name for _, name in parts if name]
    arguments.check_names(names, where=f"template {text!r}", in_key=True)
    validate_key("".join("x" if name else literal for literal, name in parts))
    if not names:
        raise ValueError(
            f"template {text!r} names no argument, so all calls of {arguments.function}() would"
            f" share one key: add a field like {{order_id}}, or say whole_function('the key')"
        )
    # Only what encoding escapes surely ends a value: with '-', 'a-b','c' would be 'a','b-c'.
    gaps = "".join("\0" if name else literal for literal, name in parts).split("\0")[1:-1]
    if not all(set(":{}") & set(gap) for gap in gaps):
        raise ValueError(
            f"in template {text!r} two fields run into each other, so different arguments could"
            f" give one key: put ':' between them"
        )

    def make(bound: Mapping[str, object]) -> str:
        pieces = (_field(bound, name, arguments.function) if name else text for text, name in parts)
        return validate_key("".join(pieces))

    return make


def _parse(text: str) -> Iterable[tuple[str, str | None]]:
    for part in _TEMPLATE_PART.finditer(text):
        found, name = part[0], part["name"]
        if found in {"{", "}"}:
            raise ValueError(
                f"template {text!r} has a single {found!r} at position {part.start()}: a field is"
                f" {{name}}, a literal brace is written twice"
            )
        if name is not None and not name.isidentifier():
            raise ValueError(
                f"template {text!r} has the field {found!r}: a field is the name of one argument,"
                f" no attribute, index, conversion or format; for more, give a function"
            )
        yield {"{{": "{", "}}": "}"}.get(found, found), name


def _from_function(
    make_key: Callable[..., str], where: str, arguments: Arguments
) -> Callable[[Mapping[str, object]], str]:
    parameters = _signature(make_key).parameters.values()
    names = [p.name for p in parameters]
    if not names or any(p.kind in (*_VARIADIC, p.POSITIONAL_ONLY) for p in parameters):
        raise ValueError(
            f"{where} must name the arguments it needs, without '*' and '/'; if it needs none, say"
            f" whole_function('the key')"
        )
    arguments.check_names(names, where=where)
    return lambda bound: validate_key(
        make_key(**{name: _present(bound, name, arguments.function) for name in names}),
        f"the key of {where}",
    )


def _present(bound: Mapping[str, object], name: str, function: str) -> object:
    if name not in bound:
        raise TypeError(f"argument {name!r} of {function}() is the queue's context, never in a key")
    return bound[name]


def _field(bound: Mapping[str, object], name: str, function: str) -> str:
    value, what = _present(bound, name, function), f"argument {name!r} of {function}()"
    text = _text(value)
    if text is None:
        raise TypeError(
            f"{what} is of type {type(value).__name__}, which has no one text for a key: pass an id"
            f" (str, int, UUID, date, finite Decimal or Enum), or give a function as the key"
        )
    if not text:
        raise ValueError(
            f"{what} is empty, so all such calls would share one key: pass the id, or give a"
            f" function as the key"
        )
    return encode(text, what)


def _text(value: object) -> str | None:
    """Return the one text of a value, blind to its type; None where there is none."""
    if isinstance(value, Enum):
        return _text(value.value)
    if isinstance(value, date):  # and datetime
        return value.isoformat()
    if isinstance(value, str):
        return str.__str__(value)  # a subclass may print as something else
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__repr__(value)
    fine = isinstance(value, UUID) or (isinstance(value, Decimal) and value.is_finite())
    return str(value) if fine else None


def encode(text: str, what: str = "the text") -> str:
    """Escape `%`, `:`, braces, space and controls as %XX, so that no two texts become one.

    Raises:
        ValueError: `what` (its name) has a lone surrogate, which is no character.
    """
    _utf8(text, what)
    return _ESCAPED.sub(lambda found: "".join(f"%{b:02X}" for b in found[0].encode()), text)


def scoped(key: str, scope: str | None) -> str:
    """Put a key under a tenant or an application, apart from every other scope.

    Raises:
        ValueError: The scope is empty, or the whole is not a valid key.
    """
    if scope == "":
        raise ValueError("the scope is empty: name the tenant, or pass None for none")
    return key if scope is None else validate_key(f"{encode(scope, 'the scope')}:{key}")


def validate_key(key: str, what: str = "the key") -> str:
    """Return `key` if it may name a resource as it stands; `what` is its name in messages.

    Raises:
        TypeError: It is no str.
        ValueError: It is empty, too long, has a space or control character, or braces that are
            not exactly one hash tag.
    """
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{what} must be a str, not {type(key).__name__}")
    if not key:
        raise ValueError(f"{what} is empty: name the resource, like 'lock:order:42'")
    what = f"{what} {key if len(key) <= 80 else key[:80] + '...'!r}"
    if (size := len(_utf8(key, what))) > KEY_BYTES_MAX:
        raise ValueError(
            f"{what} has {size} bytes, more than {KEY_BYTES_MAX}: use an id, or give a function as"
            f" the key which hashes what is long"
        )
    if bad := _REFUSED.search(key):
        raise ValueError(f"{what} has a space or control at {bad.start()}: write it as %XX")
    # The hash tag of Redis Cluster stands between the first '{' and the first '}' after it.
    braces = key.count("{"), key.count("}")
    if braces != (0, 0) and (braces != (1, 1) or key.find("}") < key.find("{") + 2):
        raise ValueError(
            f"{what} has braces that are not one hash tag: write one pair with something in it,"
            f" like 'lock:{{order}}:42', or none"
        )
    return key


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} has a lone surrogate at position {error.start}") from None
