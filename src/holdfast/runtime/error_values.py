"""The values that errors carry (arguments, fields) as JSON, and back, each as what it was.

Only values of exactly these types are taken: looking at anything else could run its code, and
what describes an error must not. All else is refused with `Unstorable`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PosixPath, PurePath, PurePosixPath
from typing import Any, cast
from uuid import UUID

MAX_DEPTH = 20
MAX_PARTS = 10_000
MAX_INTEGER_BITS = 4096
"""Python refuses to write integers of more than 4,300 digits."""


class Unstorable(Exception):
    """A value that an error carries and the journal can't."""


_WRITTEN: dict[type, tuple[str, Callable[[Any], Any]]] = {
    Decimal: ("$decimal", str),
    timedelta: ("$seconds", timedelta.total_seconds),
    datetime: ("$datetime", datetime.isoformat),
    date: ("$date", date.isoformat),
    time: ("$time", time.isoformat),
    bytes: ("$bytes", bytes.hex),
    UUID: ("$uuid", str),
    PosixPath: ("$path", str),
    PurePosixPath: ("$pure_path", str),
}

_READ: dict[str, Callable[[Any], Any]] = {
    "$decimal": Decimal,
    "$seconds": lambda number: timedelta(seconds=number),
    "$datetime": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$time": time.fromisoformat,
    "$bytes": bytes.fromhex,
    "$uuid": UUID,
    "$path": PosixPath,
    "$pure_path": PurePath,
    "$float": float,
    "$tuple": lambda parts: tuple(unpacked(part) for part in parts),
    "$dict": lambda pairs: {unpacked(name): unpacked(part) for name, part in pairs},
}


class _Packer:
    """Counts what it takes, so that neither a large value nor a recursive one goes on for ever."""

    def __init__(self) -> None:
        self._parts = 0

    def pack(self, value: Any, depth: int) -> Any:
        self._parts += 1
        if depth > MAX_DEPTH or self._parts > MAX_PARTS:
            raise Unstorable
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]
        if value is None or kind is str or kind is bool:
            return value
        if kind is int:
            return self._integer(value)
        if kind is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if kind is list:
            return [self.pack(part, depth + 1) for part in value]
        if kind is tuple:
            return {"$tuple": [self.pack(part, depth + 1) for part in value]}
        if kind is dict:
            return self._dict(value, depth)
        if kind not in _WRITTEN:
            raise Unstorable
        tag, write = _WRITTEN[kind]
        return {tag: write(value)}

    @staticmethod
    def _integer(value: int) -> int:
        if value.bit_length() > MAX_INTEGER_BITS:
            raise Unstorable
        return value

    def _dict(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        pairs = [
            (self.pack(name, depth + 1), self.pack(part, depth + 1)) for name, part in value.items()
        ]
        if all(type(name) is str and not name.startswith("$") for name in value):
            return dict(pairs)
        return {"$dict": [list(pair) for pair in pairs]}


def packed(value: Any) -> Any:
    """The value as JSON can carry it; raises Unstorable."""
    return _Packer().pack(value, 0)


def unpacked(value: Any) -> Any:
    """What `packed` was given."""
    if isinstance(value, list):
        return [unpacked(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value)
        if len(items) == 1:
            ((name, part),) = items.items()
            if name in _READ:
                return _READ[name](part)
        return {name: unpacked(part) for name, part in items.items()}
    return value
