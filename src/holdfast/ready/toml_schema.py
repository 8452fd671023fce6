"""The JSON schema of `holdfast.toml`, from the settings that each layer has: for editors."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, cast

_SCALARS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    Decimal: {"type": ["number", "string"]},
    Any: {},
}


def schema(sections: Mapping[str, type[Any]]) -> dict[str, Any]:
    """The schema of the whole file; `sections` are the settings by their section's name."""
    tables = {name: _table(cls) for name, cls in sections.items()}
    profile = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"store": {"type": "string"}, "engine": {"type": "string"}, **tables},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "holdfast.toml",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "profile": {"type": "string", "description": "dev, prod, or one of [profiles]"},
            "store": {"type": "string"},
            "engine": {"type": "string"},
            "profiles": {"type": "object", "additionalProperties": profile},
            **tables,
        },
    }


def _table(cls: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    properties: dict[str, Any] = {}
    for each in dataclasses.fields(cls):
        found = _of(hints[each.name])
        if each.metadata.get("duration"):
            found = {"type": ["number", "string"], "description": 'seconds, or text such as "90s"'}
        if isinstance(each.default, str | int | float | bool):
            found = {**found, "default": each.default}
        properties[each.name] = found
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _of(hint: Any) -> dict[str, Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _of(next(each for each in arguments if each is not type(None)))
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        one = _of(arguments[0])
        return {"anyOf": [{"type": "array", "items": one}, one]}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(arguments[1])}
    if dataclasses.is_dataclass(hint):
        return _table(cast("type[Any]", hint))
    return dict(_SCALARS.get(hint, {}))
