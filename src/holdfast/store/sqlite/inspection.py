"""Questions the inspector asks: read-only, on connections that only read.

A question sees the store at one moment (one transaction), never waits for a writer and never
makes one wait; what it may touch is bounded by an index and a limit, so that a page costs the
same with a hundred runs and with a hundred thousand. What to show is the server's business.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from holdfast.store.sqlite.database import Database

T = TypeVar("T")

LAST_LOG = "SELECT coalesce(max(log), 0) FROM events"


class Inspection:
    """Reads the store at `path`; the file has to exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = Database.open(path)

    async def ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """The answer to a question, asked in a thread, in one read transaction."""
        # Text that is damaged is shown as far as it can be read; the runtime refuses it.
        return await asyncio.wrap_future(self._database.read(question, lenient=True))

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()


def last_log(connection: sqlite3.Connection) -> int:
    """Where the log of all runs ends: live views go on from there."""
    return int(connection.execute(LAST_LOG).fetchone()[0])


def marks(values: Any) -> str:
    """As many question marks as there are values."""
    return ",".join("?" * len(values))
