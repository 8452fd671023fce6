"""Typed settings from plain data: strict, with errors that name the place and the nearest key.

Builds a layer's settings, a dataclass, from what a TOML section or a variable holds. Durations
may be written as text ("90s"), money as a number or text.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar, cast

from holdfast.durations import seconds
from holdfast.errors import ConfigError, UsageError
from holdfast.near_names import did_you_mean

T = TypeVar("T")
DURATION = {"duration": True}
"""Field metadata: a float of seconds that may be written as text."""
_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def build(cls: type[T], data: object, path: str) -> T:
    """An instance of the dataclass `cls` from a mapping; raises ConfigError."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path} should be a table, not {data!r}")
    given = cast("Mapping[str, Any]", data)
    fields = {field.name: field for field in dataclasses.fields(cast(Any, cls))}
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in fields:
            raise unknown(name, list(fields), path)
        duration = bool(fields[name].metadata.get("duration"))
        values[name] = convert(value, hints[name], f"{path}.{name}", duration=duration)
    missing = [
        field.name
        for field in fields.values()
        if field.name not in values
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(f"{path} lacks {', '.join(missing)}")
    try:
        return cls(**values)
    except UsageError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from error


def convert(value: Any, hint: Any, path: str, *, duration: bool = False) -> Any:
    """`value` as the annotated type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        inner = [argument for argument in arguments if argument is not type(None)]
        return convert(value, inner[0], path, duration=duration)
    if origin is typing.Literal:
        if value in arguments:
            return value
        raise unknown(str(value), [str(argument) for argument in arguments], path)
    if origin is tuple:
        many: list[Any] = [value] if isinstance(value, str) else value
        if not isinstance(many, list | tuple):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"{path} should be a list, not {value!r}")
        return tuple(convert(one, arguments[0], f"{path}[{n}]") for n, one in enumerate(many))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{path} should be a table, not {value!r}")
        table = cast("Mapping[str, Any]", value)
        return {key: convert(one, arguments[1], f"{path}.{key}") for key, one in table.items()}
    if dataclasses.is_dataclass(hint):
        return build(cast("type[Any]", hint), value, path)
    return _scalar(value, hint, path, duration=duration)


def scalar_fields(cls: type[Any]) -> list[str]:
    """The fields that can be written as one text: what a variable can set."""
    hints = typing.get_type_hints(cls)
    return [name for name, hint in hints.items() if _plain_type(hint) is not None]


def from_text(text: str, cls: type[Any], name: str, path: str) -> Any:
    """A field's value from a variable's text, still to be checked by `build`."""
    kind = _plain_type(typing.get_type_hints(cls)[name])
    if kind is bool:
        if text.lower() not in _WORDS:
            raise ConfigError(f"{path} should be true or false, not {text!r}")
        return _WORDS[text.lower()]
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            return text  # a duration, or a mistake that `build` explains
    if kind is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _plain_type(hint: Any) -> type[Any] | None:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        inner = [argument for argument in arguments if argument is not type(None)]
        return _plain_type(inner[0])
    if origin is typing.Literal:
        return str
    if origin is tuple:
        return tuple if _plain_type(arguments[0]) is str else None
    return hint if hint in (str, int, float, bool, Decimal) else None


def _scalar(value: Any, hint: Any, path: str, *, duration: bool) -> Any:
    if duration:
        try:
            return seconds(value)
        except (UsageError, TypeError, ValueError) as error:
            raise ConfigError(f"{path}: {value!r} is no duration", hint='such as "90s"') from error
    if hint is Decimal and not isinstance(value, bool):
        try:
            amount = Decimal(str(value))
        except InvalidOperation as error:
            raise ConfigError(f"{path} should be an amount, not {value!r}") from error
        if not amount.is_finite() or amount < 0:
            raise ConfigError(f"{path} should be 0 or more, not {value!r}")
        return amount
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is Any or (isinstance(value, hint) and not (hint is int and value is True)):
        return value
    raise ConfigError(f"{path} should be of type {hint.__name__}, not {value!r}")


def unknown(name: str, known: list[str], path: str) -> ConfigError:
    """The error for a name that is not among the known ones, with the nearest of them."""
    hint = did_you_mean(name, known, f"it knows {', '.join(sorted(known))}")
    return ConfigError(f"{path}: there is no {name!r}", hint=hint)
