"""Values of a type hint, and JSON of a schema: what drills use where nothing was recorded.

The first value of a hint is a plain one, the others are at its edges: empty, large, odd characters.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import types
import typing
import uuid
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

_SCALARS: dict[Any, list[Any]] = {
    str: ["example", "", 'ä \u2028 🙂 \\ " \n'],
    int: [3, 0, -1, 2**53 + 1],
    float: [1.5, 0.0, -0.1, 1e300],
    bool: [True, False],
    bytes: [b"example", b"", bytes(range(256))],
    type(None): [None],
    Decimal: [Decimal("12.50"), Decimal(0), Decimal("0.1")],
    datetime.datetime: [datetime.datetime(2027, 3, 1, 12, 30, tzinfo=datetime.UTC)],
    datetime.date: [datetime.date(2027, 3, 1)],
    datetime.time: [datetime.time(12, 30)],
    datetime.timedelta: [datetime.timedelta(minutes=3)],
    uuid.UUID: [uuid.UUID(int=7)],
    Path: [Path("a/b")],
    Any: ["example", 3, None, [1, {"a": "b"}]],
}
_DEPTH = 4


class NoExample(Exception):
    """No value of this type can be made up."""


def examples(hint: Any, depth: int = 0) -> list[Any]:
    """Values of the hinted type, a plain one first; raises NoExample."""
    if depth > _DEPTH:
        raise NoExample(f"{hint!r} is nested too deep")
    try:
        if hint in _SCALARS:
            return list(_SCALARS[hint])
    except TypeError:
        pass  # an unhashable hint
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is None:
        return [None]
    if origin is typing.Annotated:
        return examples(arguments[0], depth)
    if origin is typing.Literal:
        return list(arguments)
    if origin in (typing.Union, types.UnionType):
        plain = sorted(arguments, key=lambda each: each is type(None))
        return [value for each in plain for value in examples(each, depth + 1)[:2]]
    if origin is not None:
        return _generic(origin, arguments, depth)
    if hint in (list, dict, set, tuple, frozenset):
        return [hint()]
    if isinstance(hint, type):
        return _of_class(cast("type[Any]", hint), depth)
    raise NoExample(f"nothing is known of {hint!r}")


def _generic(origin: Any, arguments: tuple[Any, ...], depth: int) -> list[Any]:
    def inner(which: Any) -> list[Any]:
        return examples(which, depth + 1)

    if isinstance(origin, type) and issubclass(origin, tuple):
        if len(arguments) == 2 and arguments[1] is ...:
            return [tuple(inner(arguments[0])[:1]), (), tuple(inner(arguments[0]))]
        return [tuple(inner(each)[0] for each in arguments)]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        keys, values = inner(arguments[0]), inner(arguments[1])
        return [dict(zip(keys[:1], values[:1], strict=False)), {}]
    if isinstance(origin, type) and issubclass(origin, set | frozenset):
        return [origin(inner(arguments[0])[:1]), origin()]
    try:
        many = inner(arguments[0])
    except IndexError:
        many = []
    if isinstance(origin, type) and dataclasses.is_dataclass(origin):
        return _of_class(origin, depth)
    return [many[:1], [], many]


def _of_class(cls: type[Any], depth: int) -> list[Any]:
    if issubclass(cls, enum.Enum):
        return list(cls)
    if issubclass(cls, str | int | float | bytes) and cls not in _SCALARS:
        bases: tuple[type[Any], ...] = (str, int, float, bytes)
        base = next(each for each in bases if each in cls.__mro__)
        return [cls(value) for value in _SCALARS[base]]
    fields = _fields(cls)
    if fields is None:
        raise NoExample(f"nothing is known of {cls.__qualname__}")
    values = {name: examples(hint, depth + 1) for name, hint in fields.items()}
    most = max((len(each) for each in values.values()), default=1)
    made: list[Any] = []
    for number in range(min(most, 4)):
        chosen = {name: each[min(number, len(each) - 1)] for name, each in values.items()}
        try:
            made.append(cls(**chosen))
        except (ValueError, TypeError) as error:  # the class's own idea of what is right
            if not made and number + 1 == min(most, 4):
                raise NoExample(f"{cls.__qualname__} refuses what was made up: {error}") from error
    return made


def _fields(cls: type[Any]) -> dict[str, Any] | None:
    """The fields that its constructor needs, by their hints."""
    if dataclasses.is_dataclass(cls):
        hints = typing.get_type_hints(cls)
        return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}
    model = getattr(cls, "model_fields", None)
    if isinstance(model, dict):
        fields = cast("dict[str, Any]", model)
        return {name: field.annotation for name, field in fields.items()}
    return None


def from_schema(schema: Mapping[str, Any], whole: Mapping[str, Any] | None = None) -> Any:
    """Plain JSON that fits a schema."""
    whole = whole or schema
    if "$ref" in schema:
        return from_schema(_referred(schema["$ref"], whole), whole)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for several in ("anyOf", "oneOf", "allOf"):
        if schema.get(several):
            return from_schema(schema[several][0], whole)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = cast("list[str]", kind)[0]
    match kind:
        case "object":
            properties: Mapping[str, Any] = schema.get("properties", {})
            return {name: from_schema(each, whole) for name, each in properties.items()}
        case "array":
            least = schema.get("minItems", 1)
            return [from_schema(schema.get("items", {}), whole)] * least
        case "integer":
            return schema.get("minimum", schema.get("exclusiveMinimum", 2) + 1)
        case "number":
            return schema.get("minimum", schema.get("exclusiveMinimum", 2) + 1)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            formats = {
                "date-time": "2027-03-01T12:30:00Z",
                "date": "2027-03-01",
                "uuid": str(uuid.UUID(int=7)),
            }
            return formats.get(schema.get("format", ""), "2" if "pattern" in schema else "example")


def _referred(reference: str, whole: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = whole
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found
