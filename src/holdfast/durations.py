"""Durations as people write them: a timedelta, seconds, or text such as "24h" or "1h30m"."""

from __future__ import annotations

import re
from datetime import timedelta

from holdfast.errors import UsageError

Duration = timedelta | float | int | str

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")


def seconds(value: Duration) -> float:
    """The duration in seconds: `seconds("1h30m") == 5400.0`."""
    if isinstance(value, timedelta):
        total = value.total_seconds()
    elif isinstance(value, str):
        total = _parse(value)
    else:
        total = float(value)
    if not 0 <= total < float("inf"):
        raise UsageError(f"{value!r} is no duration", hint="it must be 0 or more, and finite")
    return total


def _parse(text: str) -> float:
    compact = text.replace(" ", "").lower()
    parts = _PART.findall(compact)
    if not parts or "".join(n + u for n, u in parts) != compact:
        raise UsageError(
            f"{text!r} is no duration", hint='write it as "90s", "15m", "24h", "7d" or "1h30m"'
        )
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
