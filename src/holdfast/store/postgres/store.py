"""The store on a server: the same calls as on a file, by any number of machines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from holdfast.clock import Clock
from holdfast.errors import Refused
from holdfast.records import Event, Worker
from holdfast.store.connection import Connection
from holdfast.store.postgres import log_order
from holdfast.store.postgres.claims import Claiming
from holdfast.store.postgres.database import PostgresDatabase
from holdfast.store.postgres.notices import LoopNotices
from holdfast.store.postgres.url import PostgresUrl
from holdfast.store.sqlite import leases
from holdfast.store.sqlite.database import Database, Own, Transaction
from holdfast.store.sqlite.store import SqlStore
from holdfast.store.sqlite.wake import Wakes

SETTLE_SECONDS = 2.0
"""How long whoever reads the log waits for transactions under way to end, to be given what was
committed meanwhile; one that takes longer holds the log back, not the reader."""
LOOK_SECONDS = 0.005

FOLD = """
WITH here AS (SELECT ctid FROM run_deltas FOR UPDATE SKIP LOCKED),
  gone AS (DELETE FROM run_deltas WHERE ctid IN (SELECT ctid FROM here)
           RETURNING workflow, status, delta)
INSERT INTO run_deltas SELECT workflow, status, sum(delta) FROM gone
GROUP BY workflow, status HAVING sum(delta) <> 0
"""


class PostgresStore(SqlStore):
    """A Store at an address; `process` identifies this process among those that share it."""

    def __init__(self, url: PostgresUrl, process: str) -> None:
        # All who open the same address have one Database, and with it one clock.
        self._own = PostgresDatabase.at(url)
        self._kept = True
        super().__init__(url.name, process, self._own.clock)
        self.url = url

    def _connect(self) -> Database:
        if not self._kept:
            self._own = PostgresDatabase.at(self.url)
            self.clock: Clock = self._own.clock
        self._kept = False
        return self._own

    def _listen(self) -> Wakes | None:
        if not self.url.listen:
            return None
        return LoopNotices(self.url, lambda: self.on_change(None))

    async def renew(self, worker: Worker) -> None:
        def operation(tx: Transaction) -> None:
            self._own.clock.read(tx.connection)
            leases.lease(tx, worker, self._moment())
            tx.execute(FOLD)

        await self._write(Own((), operation))

    def _claiming(
        self, worker: Worker, wanted: leases.Wanted, now: leases.Moment, lost: Sequence[str]
    ) -> Claiming:
        return Claiming(worker, wanted, now, lost)

    async def log(self, after: int, limit: int, run_id: str | None = None) -> list[Event]:
        await self._settled()
        return await super().log(after, limit, run_id)

    async def log_end(self) -> int:
        await self._settled()
        return await super().log_end()

    async def _settled(self) -> None:
        """Wait a moment for what is committed and behind a transaction that still goes on."""

        def is_behind(connection: Connection) -> bool:
            return bool(connection.execute(log_order.BEHIND).fetchone()[0])

        loop = asyncio.get_running_loop()
        ends = loop.time() + SETTLE_SECONDS
        while await self._read(is_behind) and loop.time() < ends:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)

    async def vacuum(self) -> int:
        raise Refused(
            f"{self.name} is in PostgreSQL, which makes room by itself",
            hint="VACUUM FULL, if it has to give the disk back: writers wait for it",
        )

    async def backup(self, target: Path) -> None:
        raise Refused(
            f"{self.name} is in PostgreSQL, which has its own backups",
            hint=f"pg_dump --schema={self.url.schema} DATABASE, or your provider's",
        )
