"""Results of finished jobs as JSON text, and back again.

A repeat that is answered from the record gets what the first run returned, of the same types: the
return annotation says how to rebuild it, and one that cannot say so is refused at decoration. A
job is never failed because its result cannot be kept: its effect has happened.
"""

import inspect
import json
import typing
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Final, Literal, Union, cast, get_args, get_origin
from uuid import UUID

LIMIT_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Stored:
    """What to keep of a result: its text, or why there is none (never with values in it)."""

    text: str | None
    why: str = ""


class Codec:
    """Stores results of one annotation as text and rebuilds them.

    The annotation is asked for when it is first needed, since it may name what is defined later.
    """

    __slots__ = ("_annotation", "_limit_bytes", "_shape")

    def __init__(self, annotation: Callable[[], object], limit_bytes: int = LIMIT_BYTES) -> None:
        if limit_bytes < 1:
            raise ValueError(f"the limit of a result is {limit_bytes} bytes: give it at least 1")
        self._annotation = annotation
        self._limit_bytes = limit_bytes
        self._shape: _Shape | None = None

    def encode(self, value: object) -> Stored:
        """Return the text of `value`, or why it is not kept; never raise an `Exception`."""
        try:
            text = to_json(self.shape().dump(value))
        except _UnfitError as error:
            return Stored(None, str(error))
        except Exception as error:  # of the result's own class; its message may hold secrets
            return Stored(None, f"the result cannot be stored: {type(error).__name__}")
        if len(text) > self._limit_bytes:
            return Stored(None, f"the result has {len(text)} bytes, more than {self._limit_bytes}")
        return Stored(text)

    def decode(self, text: str) -> Any:
        """Return the result whose text this is.

        Raises:
            ValueError: The text does not fit the annotation, which has changed since.
        """
        try:
            return self.shape().load(json.loads(text))
        except Exception as error:
            raise ValueError(
                f"the stored result does not fit the return annotation: {type(error).__name__}"
            ) from error

    def shape(self) -> "_Shape":
        """Resolve the annotation, once (NameError: not yet; TypeError: not from JSON)."""
        if self._shape is None:
            self._shape = _Shapes().of(self._annotation())
        return self._shape


def codec_for(function: Callable[..., object], *, limit: int = LIMIT_BYTES) -> Codec:
    """Return the codec of what `function` returns (or what awaiting it gives).

    `limit` is the largest text to keep, in bytes.

    Raises:
        TypeError: Its results cannot be rebuilt from JSON.
        ValueError: The limit is not positive.
    """
    codec = Codec(lambda: _returned(function), limit)
    try:
        codec.shape()
    except NameError:
        pass  # defined further down, or only for type checkers: the first use will tell
    except TypeError as error:
        raise TypeError(
            f"{getattr(function, '__qualname__', function)}() promises to replay its result, but"
            f" {error} cannot be rebuilt from JSON: return plain data, a dataclass, a TypedDict or"
            f" a pydantic model, and annotate it"
        ) from None
    return codec


def _returned(function: Callable[..., object]) -> object:
    inner = inspect.unwrap(function)
    # Only this annotation: one of an argument may exist for type checkers alone.
    wanted = {k: v for k, v in getattr(inner, "__annotations__", {}).items() if k == "return"}
    carrier = cast("Any", SimpleNamespace(__annotations__=wanted))
    hints = typing.get_type_hints(carrier, getattr(inner, "__globals__", {}), include_extras=True)
    annotation = hints.get("return", Any)
    awaited = get_origin(annotation) in (Awaitable, Coroutine)
    return get_args(annotation)[-1] if awaited else annotation


class _UnfitError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Shape:  # how values of one annotation become JSON data, and back
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


def _checked(kind: type | tuple[type, ...], name: str) -> Callable[[object], object]:
    def check(value: object) -> object:
        # A datetime is a date, but would come back as less.
        if not isinstance(value, kind) or (kind is date and isinstance(value, datetime)):
            raise _UnfitError(f"the result has {type(value).__name__} where {name} is declared")
        return value

    return check


def plain(value: object) -> object:
    """Return JSON data as it is; refuse what would come back as something else."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if type(value) is list:
        return [plain(item) for item in cast("list[object]", value)]
    if type(value) is dict:
        items = cast("dict[object, object]", value)
        if all(isinstance(key, str) for key in items):
            return {key: plain(item) for key, item in items.items()}
    raise _UnfitError(
        f"the result has {value.__class__.__name__} where only plain JSON is declared"
    )


_PLAIN = _Shape(plain, plain)

# What JSON keeps as it is. As for type checkers, an int is a float and a bool is an int.
_SCALARS: dict[object, tuple[type, ...]] = {
    None: (NoneType,),
    NoneType: (NoneType,),
    bool: (bool,),
    int: (int,),
    float: (int, float),
    str: (str,),
}

_LEAVES: dict[type, _Shape] = {
    datetime: _Shape(datetime.isoformat, datetime.fromisoformat),
    date: _Shape(date.isoformat, date.fromisoformat),
    time: _Shape(time.isoformat, time.fromisoformat),
    timedelta: _Shape(lambda d: d // timedelta(microseconds=1), lambda n: timedelta(0, 0, n)),
    UUID: _Shape(str, UUID),
    Decimal: _Shape(str, Decimal),
    bytes: _Shape(bytes.hex, bytes.fromhex),
}


class _Shapes:
    """Builds shapes; each record once, so that a record may contain itself."""

    def __init__(self) -> None:
        self._records: dict[type, _Shape] = {}

    def of(self, annotation: Any) -> _Shape:
        for name in ("__supertype__", "__value__"):  # NewType; `type Name = ...`
            annotation = getattr(annotation, name, annotation)
        origin, args = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return self.of(args[0])
        if annotation is Any or annotation is object:
            return _PLAIN
        if annotation in _SCALARS:
            return _scalars((annotation,))
        if origin in (Union, UnionType):
            return self._union(args)
        if origin is Literal:
            return _literal(args)
        return self._collection(origin or annotation, args) or self._class(annotation)

    def _union(self, members: tuple[Any, ...]) -> _Shape:
        if all(member in _SCALARS for member in members):
            return _scalars(members)
        shapes = [self.of(member) for member in members]

        def dump(value: object) -> object:
            for index, shape in enumerate(shapes):
                try:
                    return [index, shape.dump(value)]
                except _UnfitError:
                    continue
            raise _UnfitError(f"the result has {type(value).__name__}, not in the declared union")

        return _Shape(dump, lambda data: cast("object", shapes[data[0]].load(data[1])))

    def _collection(self, kind: Any, args: tuple[Any, ...]) -> _Shape | None:
        if kind in (dict, Mapping):
            return self._dict(*(args or (str, Any)))
        if kind is tuple and args and args[-1] is not Ellipsis:
            return self._tuple([self.of(arg) for arg in args])
        if kind not in (list, tuple, set, frozenset, Sequence):
            return None
        kind = list if kind is Sequence else kind
        check, one = _checked(kind, kind.__name__), self.of(args[0] if args else Any)
        make = cast("Callable[[Iterable[object]], object]", kind)
        return _Shape(
            lambda value: [one.dump(item) for item in cast("Iterable[Any]", check(value))],
            lambda data: make(one.load(item) for item in data),
        )

    def _tuple(self, shapes: list[_Shape]) -> _Shape:
        check = _checked(tuple, "tuple")

        def dump(value: Any) -> object:
            items = cast("tuple[Any, ...]", check(value))
            if len(items) != len(shapes):
                raise _UnfitError(f"the result has a tuple of {len(items)}, not of {len(shapes)}")
            return [shape.dump(item) for shape, item in zip(shapes, items, strict=True)]

        return _Shape(
            dump, lambda data: tuple(s.load(item) for s, item in zip(shapes, data, strict=True))
        )

    def _dict(self, key_type: Any, item_type: Any) -> _Shape:
        check, key, item = _checked(dict, "dict"), self.of(key_type), self.of(item_type)

        def dump(value: object) -> object:
            items = cast("dict[Any, Any]", check(value)).items()
            pairs = [(key.dump(k), item.dump(v)) for k, v in items]
            return dict(pairs) if key_type is str else pairs  # JSON objects have no other keys

        def load(data: Any) -> object:
            pairs = data.items() if key_type is str else data
            return {key.load(k): item.load(v) for k, v in pairs}

        return _Shape(dump, load)

    def _class(self, cls: Any) -> _Shape:
        if not inspect.isclass(cls):
            raise TypeError(repr(cls))
        if cls in self._records:
            return self._records[cls]
        if cls in _LEAVES:
            return _leaf(cls, _LEAVES[cls])
        if issubclass(cls, Enum):
            return _literal(tuple(cls))
        if hasattr(cls, "model_validate_json"):  # pydantic's, without asking for pydantic
            return _model(cls)
        names: set[str] = set(getattr(cls, "_fields", ()))  # of a NamedTuple
        required: set[str] = getattr(cls, "__required_keys__", names)
        if is_dataclass(cls):
            names = required = {field.name for field in fields(cls)}
            if set(inspect.signature(cls).parameters) != names:
                raise TypeError(f"{cls.__qualname__}, whose fields are not what its maker takes,")
        elif hasattr(cls, "__required_keys__"):  # a TypedDict
            names = {*required, *getattr(cls, "__optional_keys__", ())}
        elif not names:
            raise TypeError(cls.__qualname__)
        return self._record(cls, names, required)

    def _record(self, cls: type[Any], names: set[str], required: set[str]) -> _Shape:
        shapes: dict[str, _Shape] = {}
        a_dict = issubclass(cls, dict)

        def dump(value: Any) -> object:
            if type(value) is not (dict if a_dict else cls):
                raise _UnfitError(f"the result has {type(value).__name__}, not {cls.__name__}")
            items = value if a_dict else {name: getattr(value, name) for name in names}
            if not required <= items.keys() <= names:
                raise _UnfitError(f"the result has other keys than {cls.__name__}")
            return {name: shapes[name].dump(item) for name, item in items.items()}

        def load(data: Any) -> object:
            if a_dict and not required <= data.keys():
                raise _UnfitError(f"the result lacks keys of {cls.__name__}")
            return cls(**{name: shapes[name].load(item) for name, item in data.items()})

        # Known before its fields are: one of them may lead back here.
        shape = self._records[cls] = _Shape(dump, load)
        hints = typing.get_type_hints(cls)
        shapes.update({name: self.of(hints.get(name, Any)) for name in sorted(names)})
        return shape


def _scalars(members: tuple[Any, ...]) -> _Shape:
    names = " | ".join(getattr(member, "__name__", "None") for member in members)
    check = _checked(tuple(kind for member in members for kind in _SCALARS[member]), names)
    return _Shape(check, check)


def _leaf(cls: type, shape: _Shape) -> _Shape:
    check = _checked(cls, cls.__name__)
    return _Shape(lambda value: shape.dump(check(value)), shape.load)


def _literal(values: tuple[Any, ...]) -> _Shape:
    data = [value.name if isinstance(value, Enum) else value for value in values]
    if not all(type(item) in _SCALARS for item in data):
        raise TypeError(f"a Literal of {values!r}")

    def find(item: object, among: Sequence[object], give: Sequence[object]) -> object:
        for candidate, answer in zip(among, give, strict=True):
            if type(candidate) is type(item) and candidate == item:
                return answer
        raise _UnfitError(f"the result has a {type(item).__name__} that is not declared")

    return _Shape(lambda value: find(value, values, data), lambda item: find(item, data, values))


def _model(cls: Any) -> _Shape:
    def dump(value: Any) -> object:
        if type(value) is not cls:
            raise _UnfitError(f"the result has {type(value).__name__}, not {cls.__name__}")
        text = value.model_dump_json(by_alias=True)
        if cls.model_validate_json(text) != value:  # excluded fields, one-way aliases
            raise _UnfitError(f"the result of {cls.__name__} does not survive as JSON")
        return json.loads(text)

    return _Shape(dump, lambda data: cls.model_validate_json(to_json(data)))


def to_json(data: object) -> str:
    """Write JSON data without spaces; NaN and infinities are no JSON."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False)
