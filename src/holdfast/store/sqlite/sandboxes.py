"""The records of sandboxes in the store at a path, for those who look: lists, pages, the API.

Read-only, by index, a page at a time, on a thread of its own. Processes that died since are
noticed as it reads, so that what they had open is never shown as running.
Writing is `sandbox_writer`'s.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from holdfast.records.sandboxes import CommandRecord, SandboxRecord
from holdfast.store.sqlite import sandbox_rows
from holdfast.store.sqlite.sandbox_rows import CommandPage, EgressPage, SandboxFilter, SandboxPage
from holdfast.store.sqlite.sandbox_writer import sweep
from holdfast.store.sqlite.schema import as_store_error, connect

__all__ = ["CommandPage", "EgressPage", "SandboxFilter", "SandboxPage", "SandboxRecords"]

T = TypeVar("T")
PAGE = 100


class SandboxRecords:
    """Questions about the sandboxes in the store at `path`; close it when done.

    >>> records = SandboxRecords(path)
    >>> page = await records.list(SandboxFilter(run_id=run.id))
    >>> commands = (await records.commands(run_id=run.id)).commands
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-sandbox-reader")
        self._connection: sqlite3.Connection | None = None

    async def notice_the_dead(self) -> None:
        """Have what processes left open that are gone put down as ended."""
        await self._read(lambda _connection: None)

    async def get(self, id: str) -> SandboxRecord | None:
        """One sandbox, or None."""
        return await self._read(lambda c: sandbox_rows.sandbox(c, id))

    async def list(
        self, where: SandboxFilter | None = None, *, limit: int = PAGE, cursor: str | None = None
    ) -> SandboxPage:
        """A page of sandboxes, newest first."""
        chosen = where or SandboxFilter()
        return await self._read(lambda c: sandbox_rows.sandboxes(c, chosen, limit, cursor))

    async def command(self, id: str) -> CommandRecord | None:
        """One command, or None."""
        return await self._read(lambda c: sandbox_rows.command(c, id))

    async def commands(
        self,
        *,
        sandbox_id: str | None = None,
        run_id: str | None = None,
        step_key: str | None = None,
        limit: int = PAGE,
        cursor: str | None = None,
    ) -> CommandPage:
        """Commands of a sandbox, of a run, or of one of its steps, oldest first."""
        return await self._read(
            lambda c: sandbox_rows.commands(c, sandbox_id, run_id, step_key, limit, cursor)
        )

    async def egress(
        self,
        *,
        sandbox_id: str | None = None,
        run_id: str | None = None,
        limit: int = PAGE,
        cursor: int | None = None,
    ) -> EgressPage:
        """Attempts to reach the network, of a sandbox or of all of a run's, oldest first."""
        return await self._read(lambda c: sandbox_rows.egress(c, sandbox_id, run_id, limit, cursor))

    async def _read(self, question: Callable[[sqlite3.Connection], T]) -> T:
        def ask() -> T:
            if self._connection is None:
                self._connection = connect(self.path)
            sweep(self._connection, self.path)
            return question(self._connection)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, ask)
        except sqlite3.Error as error:
            raise as_store_error(error, self.path) from error

    async def close(self) -> None:
        """Let go of the file."""
        await asyncio.to_thread(self._thread.shutdown)
        if self._connection is not None:
            self._connection.close()
