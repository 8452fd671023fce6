"""Calls that wait for room in a budget: first come, first served, for all on the store.

The order is kept in the store (the functions, inside the ledger's transaction). Within a process
only the first in line asks the store, when a call has settled or a moment has passed; the others
sleep until they are first (`Line`).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Iterable, Sequence

_FIRST = "SELECT min(number) FROM spend_queue WHERE scope = ?"
_JOIN = "INSERT INTO spend_queue (scope, number, call_id, owner) VALUES (?, ?, ?, ?)"


def is_turn(connection: sqlite3.Connection, scopes: Iterable[str], number: int | None) -> bool:
    """Whether nobody waits on these scopes before `number`; None: is not in line yet."""
    for scope in scopes:
        first = connection.execute(_FIRST, (scope,)).fetchone()[0]
        if first is not None and (number is None or first < number):
            return False
    return True


def join(connection: sqlite3.Connection, scopes: Iterable[str], call_id: str, owner: str) -> int:
    """Stand in line at the end; returns the place's number."""
    row = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM spend_queue").fetchone()
    connection.executemany(_JOIN, [(scope, row[0], call_id, owner) for scope in scopes])
    return row[0]


def leave(connection: sqlite3.Connection, call_id: str) -> None:
    connection.execute("DELETE FROM spend_queue WHERE call_id = ?", (call_id,))


def leave_all(connection: sqlite3.Connection, owner: str) -> None:
    """Take everyone of a process that is gone out of the line."""
    connection.execute("DELETE FROM spend_queue WHERE owner = ?", (owner,))


class Waiter:
    """One caller in line."""

    def __init__(self, scopes: Sequence[str]) -> None:
        self.scopes = scopes
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    def wake(self) -> None:
        """From any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)

    async def sleep(self, seconds: float) -> bool:
        """Until woken (True) or the time has passed."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True


class Line:
    """This process's callers in line, by scope, in their order."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Waiter]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def join(self, waiter: Waiter) -> None:
        for scope in waiter.scopes:
            self._waiting.setdefault(scope, deque()).append(waiter)

    def leave(self, waiter: Waiter) -> None:
        for scope in waiter.scopes:
            line = self._waiting[scope]
            line.remove(waiter)
            if not line:
                del self._waiting[scope]
        self.wake(waiter.scopes)

    def is_first(self, waiter: Waiter) -> bool:
        return all(self._waiting[scope][0] is waiter for scope in waiter.scopes)

    def wake(self, scopes: Iterable[str]) -> None:
        """Something settled on these scopes: whoever is first there looks again."""
        for scope in scopes:
            line = self._waiting.get(scope)
            if line:
                line[0].wake()
