"""Values as JSON, by their type hints.

Dataclasses, pydantic models, datetimes, bytes, enums, Decimals and unions cross by their hints.
A value without a hint crosses only if it is plain JSON. What would come back as something else
(NaN or a datetime without a hint, a subclass with fields of its own, text under `bytes | str`) or
can't be stored at all is refused where it was handed in, naming the path. The
decoded value is what the workflow sees, live and on replay, so that the two never differ.

No pickle: a journal is data, never code.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache, cached_property
from json.encoder import encode_basestring_ascii
from typing import Any

from holdfast.errors import CodecError, PayloadTooLarge

MAX_BYTES = 64 * 1024 * 1024
"""The largest single value that is stored, unless the settings say otherwise."""

CONFIG: Any = {
    "ser_json_bytes": "base64",
    "val_json_bytes": "base64",
    "ser_json_inf_nan": "strings",
}

_PLAIN = frozenset({str, int, bool, type(None)})
_EXACT = (str, int, bool, None, type(None))
"""Hints whose values are what JSON has; another's value is refused by the serializer."""


_QUICK = frozenset({int, str, bool})
"""Types whose values are written here, if they are small and of just that type: four of five that
are stored are, and pydantic takes ten times as long for them."""

_LONG = 4096
"""Texts of more characters take the usual way."""


def _quick(value: Any) -> bytes | None:
    """A value of one of the types above as JSON; None if it has to take the usual way."""
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is int:
        return b"%d" % value if -(1 << 63) <= value < 1 << 63 else None
    if kind is bool:
        return b"true" if value else b"false"
    if kind is str and len(value) < _LONG and value.isascii():
        return encode_basestring_ascii(value).encode("ascii")
    return None


class Codec:
    """Encodes and decodes values of one type."""

    __slots__ = ("_any", "_decode", "_encode", "_is_quick", "exact", "has_sets", "hint")

    def __init__(self, hint: Any) -> None:
        # Imported on first use: pydantic takes longer to import than all of Holdfast.
        from pydantic import PydanticSchemaGenerationError, TypeAdapter

        self.hint = hint
        self._any = hint is Any
        self._is_quick = isinstance(hint, type) and hint in _QUICK
        try:
            # In a tuple of one: a model or dataclass takes no configuration from outside, but
            # inside another type it does.
            wrapped: Any = types.GenericAlias(tuple, (hint,))
            adapter: Any = TypeAdapter[Any](wrapped, config=CONFIG)
        except PydanticSchemaGenerationError as error:
            raise CodecError(
                f"values of type {_name(hint)} can't be stored",
                hint="use types that JSON can carry: dataclasses, pydantic models, plain values",
            ) from error
        schema = str(adapter.core_schema)
        self.exact = hint in _EXACT
        """Whether a value of the very type comes back as it was, and need not be checked."""
        self.has_sets = "'type': 'set'" in schema or "'type': 'frozenset'" in schema
        self._encode = adapter.serializer.to_json
        self._decode = adapter.validator.validate_json

    def encode(self, value: Any, path: str, limit: int = MAX_BYTES) -> bytes:
        """The value as JSON; `path` names it in errors, such as `$.result`.

        What would not come back as it was, of the same type and equal, is refused.
        """
        if self._is_quick and type(value) is self.hint:
            quick = _quick(value)
            if quick is not None and len(quick) <= limit:
                return quick
        text = self.write(value, path, limit)
        if not (type(value) in _PLAIN and (self.exact or self._any)):
            self.check(value, lambda: self.decode(text, path), path)
        return text

    def write(self, value: Any, path: str, limit: int = MAX_BYTES) -> bytes:
        """The value as JSON, without a look at what it would come back as."""
        try:
            text = self._encode((value,), warnings="error")[1:-1]
        except (ValueError, RecursionError) as error:
            too_deep = _too_deep(value, path)
            if too_deep is not None:
                raise too_deep from None
            raise self._refusal(value, path, error) from error
        if len(text) > limit:
            raise PayloadTooLarge(
                f"{path}: {len(text):,} bytes are more than the limit of {limit:,}",
                hint="keep large data in files or object storage and pass a reference, "
                "or raise max_payload",
            )
        return text

    def decode(self, text: bytes, path: str) -> Any:
        """The value that the JSON stands for."""
        try:
            return self._decode(b"[%b]" % text)[0]
        except ValueError as error:
            where, what = _problem(error, path)
            raise CodecError(f"{where}: {what}", hint=f"expected {_name(self.hint)}") from error
        except Exception as error:  # what a type's own validation raises
            raise CodecError(
                f"{path}: reading it raised {type(error).__name__}: {error}",
                hint=f"expected {_name(self.hint)}",
            ) from error

    def _refusal(self, value: Any, path: str, error: ValueError | RecursionError) -> CodecError:
        where, culprit = _culprit(value, path)
        if isinstance(culprit, str):
            return CodecError(
                f"{where}: text with half of a surrogate pair can't be stored",
                hint="it is no character: text.encode('utf-8', 'replace').decode() takes it out",
            )
        if where == path and not self._any:
            return CodecError(
                f"{path}: a {_name(type(value))} can't be stored as {_name(self.hint)}",
                hint=f"the annotation and the value must agree ({_first_line(error)})",
            )
        return CodecError(
            f"{where}: a {_name(type(culprit))} can't be stored",
            hint="return data, not live objects: make it again from data where it is needed",
        )

    def check(self, value: Any, decoded: Callable[[], Any], path: str) -> None:
        """Refuse a value that would come back as another."""
        try:
            where = _difference(value, decoded(), path)
        except (CodecError, RecursionError) as error:
            said = str(error).splitlines()[0]
            raise _too_deep(value, path) or CodecError(
                f"{path}: what is stored of it could not be read back: {said}",
                hint="the annotation and the value must agree",
            ) from error
        if where is not None:
            place, original, changed = where
            raise CodecError(
                f"{place}: a {_name(type(original))} {self._told()} would come back as "
                + ("another" if type(original) is type(changed) else f"a {_name(type(changed))}"),
                hint="annotate the parameter or the return type"
                if self._any
                else "annotate it with the type that it has, or convert it",
            )

    def _told(self) -> str:
        return "without a type hint" if self._any else f"stored as {_name(self.hint)}"


@cache
def _cached(hint: Any) -> Codec:
    return Codec(hint)


def codec_for(hint: Any) -> Codec:
    """The codec of a type, made once."""
    try:
        return _cached(hint)
    except TypeError:  # an unhashable hint, such as Annotated[int, []]
        return Codec(hint)


class Signature:
    """How a function's arguments and result are stored: by parameter name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = function.__name__
        self._signature = inspect.signature(function)
        self._hints = _hints(function)

    @cached_property
    def result(self) -> Codec:
        return codec_for(self._hints.get("return", Any))

    @property
    def hints(self) -> dict[str, Any]:
        """The type of each parameter, as it is stored."""
        return dict(self._types)

    def check(self) -> None:
        """Raise CodecError if a parameter or the result is of a type that can't be stored."""
        for hint in (*self._types.values(), self.result.hint):
            codec_for(hint)
        _ = self._whole

    @cached_property
    def has_sets(self) -> bool:
        """Whether arguments hold sets, whose order differs from process to process."""
        return self._whole.has_sets

    @cached_property
    def _types(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for parameter in self._signature.parameters.values():
            hint = self._hints.get(parameter.name, Any)
            if parameter.kind is parameter.VAR_POSITIONAL:
                hint = types.GenericAlias(tuple, (hint, ...))
            elif parameter.kind is parameter.VAR_KEYWORD:
                hint = types.GenericAlias(dict, (str, hint))
            found[parameter.name] = hint
        return found

    @cached_property
    def _record(self) -> type:
        """A dataclass with a field per parameter: encodes and decodes all of them in one go."""
        fields: list[Any] = []
        for parameter in self._signature.parameters.values():
            default: Any = parameter.default
            if parameter.kind is parameter.VAR_POSITIONAL:
                field = dataclasses.field(default_factory=tuple[Any, ...])
            elif parameter.kind is parameter.VAR_KEYWORD:
                field = dataclasses.field(default_factory=dict[str, Any])
            elif default is parameter.empty:
                field: Any = dataclasses.field()
            else:
                field = dataclasses.field(default_factory=functools.partial(_same, default))
            fields.append((parameter.name, self._types[parameter.name], field))
        record = dataclasses.make_dataclass(self.name, fields, kw_only=True)
        record.__pydantic_config__ = {**CONFIG, "extra": "forbid"}  # type: ignore[attr-defined]
        return record

    @cached_property
    def _whole(self) -> Codec:
        return Codec(self._record)

    @cached_property
    def _inexact(self) -> list[str]:
        """Parameters whose values may come back as others."""
        return [name for name, hint in self._types.items() if hint not in _EXACT]

    def encode_call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int = MAX_BYTES
    ) -> tuple[bytes, tuple[Any, ...] | None]:
        """As `encode_arguments`; and the arguments, if they are what decoding would give."""
        plan = self._plan
        if plan is None or kwargs or len(args) != len(plan):
            return self.encode_arguments(args, kwargs, limit), None
        parts: list[bytes] = []
        for value, (name, kind) in zip(args, plan, strict=True):
            quick = _quick(value) if type(value) is kind else None
            if quick is None:
                return self.encode_arguments(args, kwargs, limit), None
            parts.append(name + quick)
        text = b"{" + b",".join(parts) + b"}"
        if len(text) > limit:
            return self.encode_arguments(args, kwargs, limit), None
        return text, args

    @cached_property
    def _plan(self) -> list[tuple[bytes, type]] | None:
        """The parameters, each as the beginning of a JSON field, if all are of quick types."""
        kinds = [self._types[name] for name in self._positional]
        if len(kinds) != len(self._signature.parameters):
            return None
        if not all(isinstance(kind, type) and kind in _QUICK for kind in kinds):
            return None
        names = [encode_basestring_ascii(name).encode() + b":" for name in self._positional]
        return list(zip(names, kinds, strict=True))

    def encode_arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int = MAX_BYTES
    ) -> bytes:
        """A call's arguments as a JSON object, defaults included."""
        if not kwargs and len(args) == len(self._positional):
            values = dict(zip(self._positional, args, strict=True))  # binding takes 3 µs
        else:
            values = self._bind(args, kwargs)
        try:
            text = self._whole.write(self._record(**values), "$", limit)
        except CodecError:
            for name, value in values.items():  # again, one by one, to name the guilty one
                codec_for(self._types[name]).encode(value, f"$.{name}", limit)
            raise
        if self._inexact:
            inexact = [name for name in self._inexact if type(values[name]) not in _PLAIN]
            if inexact:
                self._check(values, inexact, text)
        return text

    def _check(self, values: dict[str, Any], names: list[str], text: bytes) -> None:
        """Refuse arguments that would come back as others."""

        def decoded() -> Any:
            nonlocal record
            record = record or self._whole.decode(text, "$")
            return getattr(record, name)

        record: Any = None
        for name in names:
            codec_for(self._types[name]).check(values[name], decoded, f"$.{name}")

    @cached_property
    def _positional(self) -> list[str]:
        """The parameters' names, if all can be given by position; or nothing."""
        parameters = self._signature.parameters.values()
        usual = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
        return [p.name for p in parameters] if usual else []

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise CodecError(f"{self.name}: {error}") from error
        bound.apply_defaults()
        return bound.arguments

    def decode_arguments(self, text: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments to call the function with."""
        try:
            record = self._whole.decode(text, "$")
        except CodecError as error:
            expected = f"expected {self.name}{self._signature}"
            raise CodecError(error.message, hint=expected) from error
        if self._positional:
            return tuple([getattr(record, name) for name in self._positional]), {}
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in self._signature.parameters.values():
            value = getattr(record, parameter.name)
            if parameter.kind is parameter.VAR_POSITIONAL:
                positional += value
            elif parameter.kind is parameter.VAR_KEYWORD:
                named.update(value)
            elif parameter.kind is parameter.KEYWORD_ONLY:
                named[parameter.name] = value
            else:
                positional.append(value)
        return tuple(positional), named

    def schema(self) -> dict[str, Any] | None:
        """The arguments as a JSON Schema; None if their types have none."""
        from pydantic import PydanticUserError, TypeAdapter

        try:
            return TypeAdapter[Any](self._record).json_schema()
        except PydanticUserError:
            return None

    def encode_result(self, value: Any, limit: int = MAX_BYTES) -> bytes:
        return self.result.encode(value, "$.result", limit)

    def decode_result(self, text: bytes) -> Any:
        return self.result.decode(text, "$.result")


def _same(value: Any) -> Any:
    return value


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise CodecError(
            f"{function.__qualname__}: {error} in its annotations",
            hint="the types of stored values must be defined at module level, and imported "
            "outside of TYPE_CHECKING",
        ) from error


def _problem(error: ValueError, path: str) -> tuple[str, str]:
    """The first thing that pydantic found wrong, and where."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return path, str(error)
    first = error.errors(include_url=False)[0]
    steps = first["loc"][1:]  # the first is our tuple of one
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return path + where, first["msg"]


def _culprit(value: Any, path: str) -> tuple[str, Any]:
    """The innermost part of a value that can't be stored, and its path."""
    from pydantic_core import PydanticSerializationError, to_json

    for place, part in _parts(value, path):
        try:
            to_json(part)
        except (PydanticSerializationError, ValueError, RecursionError):
            return _culprit(part, place)
    return path, value


MAX_DEPTH = 200
"""Levels of a value that are stored: what reads JSON, here and elsewhere, bears no more."""


def _too_deep(value: Any, path: str) -> CodecError | None:
    """What is wrong with a value that holds itself, or has too many levels; with the path."""
    above: dict[int, str] = {}
    todo: list[tuple[str, Any, bool]] = [(path, value, True)]
    while todo:
        place, part, enter = todo.pop()
        if not enter:
            del above[id(part)]
            continue
        if id(part) in above:
            return CodecError(
                f"{place}: holds itself, being the same as {above[id(part)]}",
                hint="store trees: name other parts by an id instead of by reference",
            )
        inner = _parts(part, place)
        if not inner:
            continue
        if len(above) >= MAX_DEPTH:
            return CodecError(
                f"{place[:200]}…: the value has more than {MAX_DEPTH} levels",
                hint="flatten it: a list of nodes with ids, say",
            )
        above[id(part)] = place
        todo.append((place, part, False))
        todo += [(where, each, True) for where, each in reversed(inner)]
    return None


def _parts(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        items = typing.cast("dict[Any, Any]", value)
        return [(f"{path}.{name}", part) for name, part in items.items()]
    if isinstance(value, list | tuple | set | frozenset):
        sequence = typing.cast("list[Any]", value)
        return [(f"{path}[{place}]", part) for place, part in enumerate(sequence)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return [(f"{path}.{name}", getattr(value, name)) for name in names]
    fields: dict[str, Any] = getattr(typing.cast("Any", type(value)), "model_fields", {})
    return [(f"{path}.{name}", getattr(value, name)) for name in fields]


Difference = tuple[str, Any, Any]


def _difference(value: Any, decoded: Any, path: str) -> Difference | None:
    """Where a value and what it comes back as part ways: in type, or in what they hold."""
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is not type(decoded):
        whole = kind is int and type(decoded) is float and value == decoded
        return None if whole else (path, value, decoded)  # an int may be given for a float
    if kind in _PLAIN:
        return None if value == decoded else (path, value, decoded)
    if isinstance(value, dict):
        return _difference_of_dicts(typing.cast("dict[Any, Any]", value), decoded, path)
    if isinstance(value, list | tuple | deque):
        ours, theirs = list(typing.cast("list[Any]", value)), list(decoded)
        if len(ours) != len(theirs):
            return path, typing.cast("Any", value), decoded
        pairs = zip(ours, theirs, strict=True)
        parts = ((f"{path}[{place}]", *pair) for place, pair in enumerate(pairs))
        return _first_difference(parts)
    names = _field_names(value)
    if names is not None:
        parts = ((f"{path}.{n}", getattr(value, n), getattr(decoded, n, None)) for n in names)
        return _first_difference(parts)
    return None if _equal(value, decoded) else (path, value, decoded)


def _first_difference(parts: Iterable[tuple[str, Any, Any]]) -> Difference | None:
    for place, part, other in parts:
        found = _difference(part, other, place)
        if found is not None:
            return found
    return None


def _difference_of_dicts(
    ours: dict[Any, Any], theirs: dict[Any, Any], path: str
) -> Difference | None:
    if ours.keys() != theirs.keys():
        lost = next((name for name in ours if name not in theirs), None)
        return f"{path}.{lost}", lost, next((name for name in theirs if name not in ours), None)
    for one, other in zip(ours, theirs, strict=True):
        if type(one) is not type(other):
            return f"{path}.{one}", one, other
    return _first_difference((f"{path}.{n}", part, theirs[n]) for n, part in ours.items())


def _field_names(value: Any) -> list[str] | None:
    """The fields of a dataclass or model that are to come back; None for other values."""
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value) if field.compare]
    fields: dict[str, Any] | None = getattr(typing.cast("Any", type(value)), "model_fields", None)
    if not isinstance(fields, dict):
        return None
    return [name for name, field in fields.items() if not field.exclude]


def _equal(value: Any, decoded: Any) -> bool:
    if type(value).__eq__ is object.__eq__:
        return True  # it has no notion of equality: that it has the type must do
    # NaN, of whatever type, is not equal to itself.
    return bool(value == decoded) or (repr(value) == repr(decoded) and value != value)  # noqa: PLR0124


def _name(hint: Any) -> str:
    if hint is None or hint is type(None):
        return "None"
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
