"""Virtual time on PostgreSQL: the harness's runs in a real database, with its locks and commits.

Leases end and runs are due by the test's clock. A process that was killed is told at once, as on
one machine. Nothing counts as quiet while the server has something to answer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, UsageError
from holdfast.store.connection import Connection
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.postgres.url import PostgresUrl
from holdfast.store.sqlite.database import Transaction

T = TypeVar("T")


class ServerDatabase:
    """What the stores of one harness share: a store on a server, which stays when it is closed."""

    def __init__(self, name: str) -> None:
        self.url = PostgresUrl.parse(name)
        self.dead: set[str] = set()
        """Names of the stores whose process was killed."""

    @property
    def last_moment(self) -> float:
        """A test's time begins where it always does, whatever is on the server."""
        return 0.0

    def save(self, file: Path) -> None:
        raise UsageError(
            f"{self.url.name} is on a server", hint="holdfast store copy FROM TO writes a file"
        )

    def store(self, process: str, clock: Clock) -> TimedPostgresStore:
        return TimedPostgresStore(self, process, clock)

    def kill(self, process: str) -> None:
        """As if the store's process were gone; what it has sent to the server may be done."""
        self.dead.add(process)

    def close(self) -> None:
        """The stores are closed by those who opened them."""


class TimedPostgresStore(PostgresStore):
    """A store on a server that goes by a test's clock, and knows what it waits for."""

    def __init__(self, database: ServerDatabase, process: str, clock: Clock) -> None:
        super().__init__(database.url, process)
        self.process = process
        self.clock = clock
        self._dead = database.dead
        self._asked = 0

    @property
    def quiet(self) -> bool:
        """Whether the server has answered everything."""
        return self._asked == 0

    def _listen(self) -> None:
        """There is nobody else to hear."""

    async def _read(self, question: Callable[[Connection], T]) -> T:
        self._asked += 1
        try:
            return await super()._read(question)
        finally:
            self._asked -= 1

    def _submit(
        self,
        operation: Callable[[Transaction], T],
        done: Callable[[T, HoldfastError | None], None],
    ) -> None:
        def answered(value: T, error: HoldfastError | None) -> None:
            self._asked -= 1
            done(value, error)

        super()._submit(operation, answered)
        self._asked += 1

    async def lost_workers(self, me: str) -> list[str]:
        expired = await super().lost_workers(me)
        rows = await self._read(lambda c: c.execute("SELECT id FROM workers").fetchall())
        gone = self._dead & {str(row[0]) for row in rows}
        return list(dict.fromkeys([*expired, *sorted(gone)]))

    async def abandon(self) -> None:
        """After a kill: let go of the connections."""
        await self.close()
