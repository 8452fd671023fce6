"""Rates per minute, shared by all processes on the store. Runs in the ledger's transaction.

A bucket that refills steadily, and may go below empty: who takes from an empty one is told how
long to wait, and whoever comes after waits longer. A taking larger than the bucket counts as a
full one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from holdfast.store.ledger import Rate

MINUTE = 60.0
_SET = """
INSERT INTO rates (name, level, at) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET level = excluded.level, at = excluded.at
"""


def taken(level: float, seconds: float, rate: Rate) -> tuple[float, float]:
    """The level after `seconds` and the taking, and how long to wait before using it."""
    size = float(rate.per_minute)
    level = min(size, level + max(seconds, 0.0) * size / MINUTE) - min(rate.amount, size)
    return level, max(0.0, -level * MINUTE / size)


def take(connection: sqlite3.Connection, rates: Sequence[Rate], now: float) -> float:
    """Take from every bucket; returns the longest wait."""
    longest = 0.0
    for rate in rates:
        level, at = _read(connection, rate, now)
        level, wait = taken(level, now - at, rate)
        connection.execute(_SET, (rate.name, level, now))
        longest = max(longest, wait)
    return longest


def give_back(connection: sqlite3.Connection, rates: Sequence[Rate], now: float) -> None:
    for rate in rates:
        level, at = _read(connection, rate, now)
        connection.execute(_SET, (rate.name, min(rate.per_minute, level + rate.amount), at))


def _read(connection: sqlite3.Connection, rate: Rate, now: float) -> tuple[float, float]:
    row = connection.execute("SELECT level, at FROM rates WHERE name = ?", (rate.name,)).fetchone()
    return (float(rate.per_minute), now) if row is None else row
