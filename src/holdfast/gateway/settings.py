"""Typed settings from plain data: strict, with errors that name the place and the nearest key.

Builds the dataclasses of `config.py` from what a TOML section holds. Durations may be written as
text ("90s"), money as a number or text.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar, cast

from holdfast.durations import seconds
from holdfast.errors import ConfigError, UsageError

T = TypeVar("T")
DURATION = {"duration": True}
"""Field metadata: a float of seconds that may be written as text."""


def build(cls: type[T], data: object, path: str = "gateway") -> T:
    """An instance of the dataclass `cls` from a mapping; raises ConfigError."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path} should be a table, not {data!r}")
    given = cast("Mapping[str, Any]", data)
    fields = {field.name: field for field in dataclasses.fields(cast(Any, cls))}
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in fields:
            raise _unknown(name, list(fields), path)
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
        raise _unknown(str(value), [str(argument) for argument in arguments], path)
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


def _unknown(name: str, known: list[str], path: str) -> ConfigError:
    near = difflib.get_close_matches(name, known, 1, 0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"it knows {', '.join(sorted(known))}"
    return ConfigError(f"{path}: there is no {name!r}", hint=hint)
