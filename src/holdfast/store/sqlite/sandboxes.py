"""The records of sandboxes in the store at a path, for those who look: lists, pages, the API.

By index, a page at a time. Processes that died since are
noticed as it reads, so that what they had open is never shown as running.
Writing is `sandbox_writer`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from holdfast.records.sandboxes import CommandRecord, SandboxRecord
from holdfast.store.connection import Connection
from holdfast.store.sandboxes import (
    PAGE,
    CommandPage,
    EgressPage,
    SandboxFilter,
    SandboxPage,
)
from holdfast.store.sqlite import sandbox_rows
from holdfast.store.sqlite.database import Apart, Database, nothing
from holdfast.store.sqlite.process_locks import OwnerFiles, Owners, owners_folder
from holdfast.store.sqlite.sandbox_writer import close_dead, dead_owners

T = TypeVar("T")


class SqlSandboxRecords:
    """Questions about the sandboxes in a database; close it when done."""

    def __init__(self, database: Database, owners: Owners) -> None:
        self._database, self._owners = database, owners
        self._ready = False
        self._closed = False

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

    async def _read(self, question: Callable[[Connection], T]) -> T:
        if not self._ready:
            await asyncio.wrap_future(self._database.write(nothing, durable=False))
            self._ready = True
        dead, answer = await self._ask(question)
        if dead:
            operation = Apart("sandboxes", lambda tx: close_dead(tx.connection, self._owners))
            closing = self._database.write(operation)
            await asyncio.wrap_future(closing)
            _, answer = await self._ask(question)
        return answer

    async def _ask(self, question: Callable[[Connection], T]) -> tuple[list[str], T]:
        return await asyncio.wrap_future(
            self._database.read(lambda c: (dead_owners(c, self._owners), question(c)))
        )

    async def close(self) -> None:
        """Let go of the file; a second time it does nothing."""
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._database.close)


class SqliteSandboxRecords(SqlSandboxRecords):
    """Questions about the sandboxes in the store at `path`; close it when done."""

    def __init__(self, path: Path | str) -> None:
        path = Path(path)
        super().__init__(Database.open(path), OwnerFiles(owners_folder(path)))
