"""How a store's event loop hands its writes to the database, and is told when they are done.

What one turn of the loop brings goes to the database's thread in one piece, and whoever submitted
is called back on the loop once the commit is on disk. For tests and simulations there is a writer
without a thread.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Protocol

from holdfast.store.base import Change
from holdfast.store.sqlite.database import Database, Done, Item, Operation, Result, commit
from holdfast.store.sqlite.schema import as_store_error


class Writer(Protocol):
    """Carries operations to the database, in the order they were submitted."""

    def submit(self, operation: Operation, done: Done) -> None: ...

    async def close(self) -> None: ...


class LoopWriter:
    """The writer of real stores: the database's thread commits while the loop goes on."""

    def __init__(self, database: Database, on_commit: Callable[[Change], None]) -> None:
        self._database, self._on_commit = database, on_commit
        self._loop = asyncio.get_running_loop()

    def submit(self, operation: Operation, done: Done) -> None:
        self._database.submit_soon([(operation, done)], self._report)

    def _report(self, results: list[Result], change: Change) -> None:
        try:
            self._loop.call_soon_threadsafe(self._acknowledge, results, change)
        except RuntimeError:
            # The loop is closed: nobody is left to tell, and what is on disk is on disk.
            return

    def _acknowledge(self, results: list[Result], change: Change) -> None:
        for done, value, error in results:
            done(value, error)
        self._on_commit(change)

    async def close(self) -> None:
        """Wait until what was submitted is written."""
        written: asyncio.Future[None] = self._loop.create_future()

        def report(_results: list[Result], _change: Change) -> None:
            self._loop.call_soon_threadsafe(written.set_result, None)

        self._database.submit([], report)
        await asyncio.shield(written)


class InlineWriter:
    """A writer without a thread: commits on the loop, after a delay the caller chooses.

    For tests and simulations, where the schedule has to be repeatable.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        on_commit: Callable[[Change], None],
        delay: Callable[[], float] = lambda: 0.0,
        before_commit: Callable[[], None] = lambda: None,
    ) -> None:
        self._connection, self._on_commit = connection, on_commit
        self._delay, self._before_commit = delay, before_commit
        self._loop = asyncio.get_running_loop()
        self._pending: list[Item] = []
        self._timer: asyncio.TimerHandle | None = None

    def submit(self, operation: Operation, done: Done) -> None:
        self._pending.append((operation, done))
        if self._timer is None:
            self._timer = self._loop.call_later(self._delay(), self._flush)

    def _flush(self) -> None:
        self._timer = None
        items, self._pending = self._pending, []
        if not items:
            return
        try:
            self._before_commit()
        except sqlite3.Error as error:
            results: list[Result] = [(d, None, as_store_error(error, "store")) for _, d in items]
            change = Change()
        else:
            results, change = commit(self._connection, items, "store")
        for done, value, error in results:
            done(value, error)
        self._on_commit(change)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._flush()
