"""Group commit: one writer gathers what everybody has to write into one transaction.

An operation is a function of a `Transaction`. It may refuse by raising a HoldfastError *before*
it writes anything; then it alone fails. Any other error, or one in the middle, rolls the whole
batch back, and its operations are tried one by one, so that the guilty one alone fails.

Whoever submits gets a callback on the loop once the commit is on disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from holdfast.errors import HoldfastError
from holdfast.records import Event
from holdfast.store.base import Change
from holdfast.store.sqlite.schema import as_store_error

EventRow = tuple[str, int, str, str, float, str, bytes | None, str | None, bytes]

INSERT_EVENT = """
INSERT INTO events (run_id, seq, type, key, at, meta, value, blob, hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


@dataclass(slots=True)
class Transaction:
    """One batch's view of the database: event rows are gathered and inserted in one go."""

    connection: sqlite3.Connection
    rows: list[EventRow] = field(default_factory=list[EventRow])
    last_seq: dict[str, int] = field(default_factory=dict[str, int])
    """Journal length of the runs appended to in this batch (their rows may not be in yet)."""
    ended: dict[str, Event] = field(default_factory=dict[str, Event])
    mail: set[str] = field(default_factory=set[str])
    due: bool = False

    def execute(self, sql: str, parameters: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        try:
            return self.connection.execute(sql, parameters)
        except UnicodeEncodeError:
            # Half a surrogate pair, as in an error that names a strange file: SQLite can't hold
            # it, and a run must not hang on it. The journal, in ASCII, has it as it was.
            return self.connection.execute(sql, tuple(map(_escaped, parameters)))

    def flush(self) -> None:
        """Insert the gathered event rows; operations that read events call this first."""
        if self.rows:
            self.connection.executemany(INSERT_EVENT, self.rows)
            self.rows.clear()

    @property
    def written(self) -> int:
        """How many rows this batch has written so far, or gathered to write."""
        return self.connection.total_changes + len(self.rows)

    def change(self) -> Change:
        return Change(frozenset(self.mail), self.ended, self.due)


def _escaped(value: Any) -> Any:
    """Text with `\\udXXX` in place of half characters: what differed still does."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


Operation = Callable[[Transaction], Any]
Done = Callable[[Any, HoldfastError | None], None]
Item = tuple[Operation, Done]
Result = tuple[Done, Any, HoldfastError | None]


def commit(
    connection: sqlite3.Connection, items: list[Item], path: Path | str
) -> tuple[list[Result], Change]:
    """Carry out the operations in one transaction; if that fails, each in its own."""
    try:
        return _transaction(connection, items)
    except Exception as error:  # noqa: BLE001 - whatever it is, it goes to who submitted it
        if len(items) == 1:
            wrapped = error if isinstance(error, HoldfastError) else as_store_error(error, path)
            if wrapped is not error:
                wrapped.__cause__ = error
            return [(items[0][1], None, wrapped)], Change()
    results: list[Result] = []
    mail: set[str] = set()
    ended: dict[str, Event] = {}
    due = False
    for item in items:
        single, change = commit(connection, [item], path)
        results += single
        mail |= change.mail
        ended |= change.ended
        due |= change.due
    return results, Change(frozenset(mail), ended, due)


def _transaction(connection: sqlite3.Connection, items: list[Item]) -> tuple[list[Result], Change]:
    transaction = Transaction(connection)
    results: list[Result] = []
    connection.execute("BEGIN IMMEDIATE")
    try:
        for operation, done in items:
            written = transaction.written
            try:
                results.append((done, operation(transaction), None))
            except HoldfastError as refusal:
                if transaction.written != written:
                    raise  # half done must not be committed
                results.append((done, None, refusal))
        transaction.flush()
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return results, transaction.change()


class Writer(Protocol):
    """Carries operations to the database, in the order they were submitted."""

    def submit(self, operation: Operation, done: Done) -> None: ...

    async def close(self) -> None: ...


class ThreadWriter:
    """The writer of real stores: a thread that commits while the loop goes on."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        on_commit: Callable[[Change], None],
    ) -> None:
        self._connection, self._path, self._on_commit = connection, path, on_commit
        self._loop = asyncio.get_running_loop()
        self._pending: list[Item] = []
        self._flush_scheduled = False
        self._queue: SimpleQueue[list[Item] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="holdfast-writer", daemon=True)
        self._thread.start()

    def submit(self, operation: Operation, done: Done) -> None:
        self._pending.append((operation, done))
        if not self._flush_scheduled:
            # At the end of this turn of the loop: whatever else this turn brings comes along.
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._pending:
            self._queue.put(self._pending)
            self._pending = []

    def _work(self) -> None:
        stopping = False
        while not stopping:
            batches = [self._queue.get()]
            while not self._queue.empty():
                batches.append(self._queue.get())
            stopping = None in batches
            items = [item for batch in batches if batch for item in batch]
            if items:
                results, change = commit(self._connection, items, self._path)
                self._report(results, change)

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
        self._flush()
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        self._connection.close()


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
