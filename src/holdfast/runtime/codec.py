"""Values as JSON, by their type hints.

Dataclasses, pydantic models, datetimes, bytes, enums, Decimals and unions cross by their hints.
A value without a hint crosses only if it is plain JSON: anything else would come back as
something else. What can't be stored is refused where it was handed in, naming the path. The
decoded value is what the workflow sees, live and on replay, so that the two never differ.

No pickle: a journal is data, never code.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

from holdfast.errors import CodecError, PayloadTooLarge

MAX_BYTES = 64 * 1024 * 1024
"""The largest single value that is stored, unless the settings say otherwise."""

CONFIG: Any = {
    "ser_json_bytes": "base64",
    "val_json_bytes": "base64",
    "ser_json_inf_nan": "strings",
}

_PLAIN = (str, int, bool, type(None))


class Codec:
    """Encodes and decodes values of one type."""

    __slots__ = ("_any", "_decode", "_encode", "has_sets", "hint")

    def __init__(self, hint: Any) -> None:
        # Imported on first use: pydantic takes longer to import than all of Holdfast.
        from pydantic import PydanticSchemaGenerationError, TypeAdapter

        self.hint = hint
        self._any = hint is Any
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
        self.has_sets = "'type': 'set'" in schema or "'type': 'frozenset'" in schema
        self._encode = adapter.serializer.to_json
        self._decode = adapter.validator.validate_json

    def encode(self, value: Any, path: str, limit: int = MAX_BYTES) -> bytes:
        """The value as JSON; `path` names it in errors, such as `$.result`."""
        try:
            text = self._encode((value,), warnings="error")[1:-1]
        except ValueError as error:
            raise self._refusal(value, path, error) from error
        if self._any and not isinstance(value, _PLAIN):
            self._check_plain(value, self.decode(text, path), path)
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

    def _refusal(self, value: Any, path: str, error: ValueError) -> CodecError:
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

    @staticmethod
    def _check_plain(value: Any, decoded: Any, path: str) -> None:
        where = _difference(value, decoded, path)
        if where is not None:
            place, original, changed = where
            raise CodecError(
                f"{place}: a {_name(type(original))} without a type hint would come back as "
                f"a {_name(type(changed))}",
                hint="annotate the parameter or the return type",
            )


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
    def _untyped(self) -> list[str]:
        return [name for name, hint in self._types.items() if hint is Any]

    def encode_arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int = MAX_BYTES
    ) -> bytes:
        """A call's arguments as a JSON object, defaults included."""
        if not kwargs and len(args) == len(self._positional):
            values = dict(zip(self._positional, args, strict=True))  # binding takes 3 µs
        else:
            values = self._bind(args, kwargs)
        try:
            text = self._whole.encode(self._record(**values), "$", limit)
        except CodecError:
            for name, value in values.items():  # again, one by one, to name the guilty one
                codec_for(self._types[name]).encode(value, f"$.{name}", limit)
            raise
        for name in self._untyped:
            codec_for(Any).encode(values[name], f"$.{name}", limit)
        return text

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
        except (PydanticSerializationError, ValueError):
            return _culprit(part, place)
    return path, value


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


def _difference(value: Any, decoded: Any, path: str) -> tuple[str, Any, Any] | None:
    """Where a value and what it comes back as part ways."""
    if type(value) is not type(decoded):
        return path, value, decoded
    if isinstance(value, dict):
        ours, theirs = typing.cast("dict[Any, Any]", value), typing.cast("dict[Any, Any]", decoded)
        for name, part in ours.items():
            if name not in theirs:
                return f"{path}.{name}", name, next(iter(theirs), None)
            found = _difference(part, theirs[name], f"{path}.{name}")
            if found:
                return found
    elif isinstance(value, list):
        pairs = zip(typing.cast("list[Any]", value), decoded, strict=True)
        for place, (part, other) in enumerate(pairs):
            found = _difference(part, other, f"{path}[{place}]")
            if found:
                return found
    return None


def _name(hint: Any) -> str:
    if hint is None or hint is type(None):
        return "None"
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
