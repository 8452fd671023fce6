"""Questions the inspector asks: read-only, on connections of its own.

A question sees the store at one moment (one transaction), never waits for a writer and never
makes one wait; what it may touch is bounded by an index and a limit, so that a page costs the
same with a hundred runs and with a hundred thousand. What to show is the server's business.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from holdfast.errors import StoreError
from holdfast.store.sqlite import schema

T = TypeVar("T")

THREADS = 2
"""Pages answered at once; a slow one leaves a way for the others."""
MAPPED_BYTES = 1 << 28
LAST_LOG = "SELECT coalesce(max(log), 0) FROM events"


class Inspection:
    """Reads the store at `path`; the file has to exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast-inspection")
        self._own = threading.local()
        self._opened: list[sqlite3.Connection] = []

    async def ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """The answer to a question, asked in a thread, in one read transaction."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._ask, question)

    def _ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._connection()
            connection.execute("BEGIN")
            try:
                return question(connection)
            finally:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise schema.as_store_error(error, self.path) from error

    def _connection(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if found is None:
            found = self._own.connection = open_to_read(self.path)
            self._opened.append(found)
        return found

    def close(self) -> None:
        """Let go of the file."""
        self._threads.shutdown()
        for connection in self._opened:
            connection.close()
        self._opened.clear()


def open_to_read(path: Path) -> sqlite3.Connection:
    """A connection that can only read, to a file that exists."""
    if not path.exists():
        raise StoreError(f"there is no store at {path}")
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode=ro",
        uri=True,
        timeout=schema.BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    # Text that is damaged is shown as far as it can be read; the runtime refuses it.
    connection.text_factory = _as_far_as_possible
    connection.execute(f"PRAGMA mmap_size = {MAPPED_BYTES}")
    return connection


def _as_far_as_possible(data: bytes) -> str:
    return data.decode(errors="replace")


def last_log(connection: sqlite3.Connection) -> int:
    """Where the log of all runs ends: live views go on from there."""
    return int(connection.execute(LAST_LOG).fetchone()[0])


def marks(values: Any) -> str:
    """As many question marks as there are values."""
    return ",".join("?" * len(values))
