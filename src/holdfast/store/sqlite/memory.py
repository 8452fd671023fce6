"""The same store in memory, without threads: for tests and simulations.

Everything but the carrying is the real thing: the same SQL, the same projections, the same
fences. Several stores may share a database, as several processes share a file; each is then
told of the others' commits by way of its own loop.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from holdfast.clock import Clock
from holdfast.store.sqlite import schema
from holdfast.store.sqlite.database import Transaction
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.sqlite.writer import InlineWriter

T = TypeVar("T")


class MemoryDatabase:
    """What the stores of one world share.

    `copy_of`: it begins with what is in that file, whose workers count as killed.
    """

    def __init__(self, copy_of: Path | None = None) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        if copy_of is not None:
            with closing(
                sqlite3.connect(f"{copy_of.absolute().as_uri()}?mode=ro", uri=True)
            ) as file:
                file.backup(self.connection)
        schema.migrate(self.connection, "memory")
        self.stores: list[MemoryStore] = []
        self.dead = {str(row[0]) for row in self.connection.execute("SELECT id FROM workers")}
        """Names of the stores whose process was killed."""

    @property
    def last_moment(self) -> float:
        """When the last event was recorded; 0 before the first."""
        return float(self.connection.execute("SELECT max(at) FROM events").fetchone()[0] or 0.0)

    def save(self, file: Path) -> None:
        """Write all of it to a new file."""
        with closing(sqlite3.connect(file)) as target:
            self.connection.backup(target)

    def store(self, process: str, clock: Clock) -> MemoryStore:
        return MemoryStore(self, process, clock)

    def kill(self, process: str) -> None:
        """As if the store's process were gone: what it had not committed is lost."""
        self.stores[:] = [store for store in self.stores if store.process != process]
        self.dead.add(process)

    def close(self) -> None:
        self.connection.close()


class MemoryStore(SqliteStore):
    """A store on a MemoryDatabase."""

    def __init__(
        self,
        database: MemoryDatabase,
        name: str,
        clock: Clock,
        *,
        delay: Callable[[], float] = lambda: 0.0,
        before_commit: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(Path(":memory:"), name, clock)
        self.process = name
        self._database = database
        self._delay, self._before_commit = delay, before_commit

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reading = self._database.connection
        self._writer = InlineWriter(
            self._database.connection, self._committed, self._delay, self._before_commit
        )
        self._database.stores.append(self)

    async def close(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            await writer.close()
            self._database.stores.remove(self)

    async def abandon(self) -> None:
        """After a kill there is nothing to let go of."""

    @property
    def quiet(self) -> bool:
        """Whether it has answered everything: it does so at once, or by the loop's own timers."""
        return True

    def _tell_others(self) -> None:
        for other in self._database.stores:
            if other is not self:
                other.wake()

    def _write_apart(self, operation: Callable[[Transaction], None]) -> None:
        """There is no other thread here: nobody else could want the runs meanwhile."""

    def _keep_mark(self, mark: str) -> None:
        """There is no file beside this one."""

    def wake(self) -> None:
        """Another store has committed something."""
        self._loop.call_soon(lambda: self.on_change(None))

    async def _read(self, question: Callable[[sqlite3.Connection], T]) -> T:
        await asyncio.sleep(0)  # others may come in between, as with a real reader
        return question(self._reading)

    async def lost_workers(self, me: str) -> list[str]:
        expired = await super().lost_workers(me)
        owners = {str(r[0]) for r in self._reading.execute("SELECT id FROM workers")}
        return list(dict.fromkeys([*expired, *sorted(self._database.dead & owners)]))


def disk_is_full() -> sqlite3.OperationalError:
    """What a commit raises for which there is no room: for `before_commit` of a store."""
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorname = "SQLITE_FULL"
    return error
