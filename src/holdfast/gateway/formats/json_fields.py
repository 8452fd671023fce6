"""Reading JSON from the wire: typed access that names the path of what is wrong."""

from __future__ import annotations

from typing import Any, cast

from holdfast import json_text

Json = dict[str, Any]


class WireError(ValueError):
    """The JSON is not of the expected form; the message names where."""


def fields(value: object, path: str = "body") -> Json:
    """A JSON object."""
    if isinstance(value, dict):
        return cast(Json, value)
    raise WireError(f"{path} should be an object, not {_name(value)}")


def items(value: object, path: str) -> list[Any]:
    """A JSON array; a missing one is empty."""
    if value is None:
        return []
    if isinstance(value, list):
        return cast("list[Any]", value)
    raise WireError(f"{path} should be an array, not {_name(value)}")


def text(value: object, path: str) -> str:
    """A JSON string."""
    if isinstance(value, str):
        return value
    raise WireError(f"{path} should be a string, not {_name(value)}")


def optional_text(value: object, path: str) -> str | None:
    return None if value is None else text(value, path)


def optional_int(value: object, path: str) -> int | None:
    """A JSON integer, or None; a boolean is none."""
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise WireError(f"{path} should be an integer, not {_name(value)}")
    return value


def optional_number(value: object, path: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WireError(f"{path} should be a number, not {_name(value)}")
    return value


def optional_bool(value: object, path: str) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise WireError(f"{path} should be true or false, not {_name(value)}")


def count(value: object) -> int:
    """A token count as a provider tells it: anything that is no whole number counts as 0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and value > 0 else 0


def details(value: object) -> Json:
    """The finer counts within a usage block: of another shape they tell nothing."""
    return cast(Json, value) if isinstance(value, dict) else {}


def dumps(data: object) -> bytes:
    """Compact JSON."""
    return json_text.dump(data)


def _name(value: object) -> str:
    names = {"str": "a string", "list": "an array", "dict": "an object", "bool": "true or false"}
    return names.get(type(value).__name__, "null" if value is None else "a number")
