"""The parts of a store in PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg

from holdfast.errors import HoldfastError
from holdfast.store.connection import Connection, DatabaseFault
from holdfast.store.health import Health
from holdfast.store.inspection import StoreState, View
from holdfast.store.ledger import KEPT_SECONDS
from holdfast.store.postgres import schema
from holdfast.store.postgres.changes import PostgresChangeDetector
from holdfast.store.postgres.connection import (
    PostgresConnection,
    as_store_error,
    connect,
    may_succeed_again,
)
from holdfast.store.postgres.database import PostgresDatabase
from holdfast.store.postgres.owners import LeasedOwner, OwnerLeases
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.postgres.url import PostgresUrl
from holdfast.store.sandboxes import Dropped
from holdfast.store.sqlite import sandbox_cleanup, worker_views
from holdfast.store.sqlite.inspection import SqlView
from holdfast.store.sqlite.ledger import SqlLedger
from holdfast.store.sqlite.sandbox_writer import SqlSandboxWriter, Write
from holdfast.store.sqlite.sandboxes import SqlSandboxRecords

T = TypeVar("T")
log = logging.getLogger("holdfast")

COUNTS = "SELECT status, sum(runs)::bigint FROM run_counts GROUP BY status ORDER BY status"
ALIVE = """
SELECT id FROM workers WHERE lease_until > extract(epoch FROM clock_timestamp()) ORDER BY id
"""
SETTINGS = "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes')"
STANDBYS = """
SELECT count(sync_state), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum'))
FROM pg_stat_replication
"""
CONNECTIONS = """
SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
  current_setting('max_connections')::bigint
"""
TABLES = """
SELECT relname, pg_total_relation_size(c.oid) FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ? AND c.relkind = 'r' ORDER BY 2 DESC, 1
"""


@dataclass(frozen=True)
class PostgresParts:
    """The store at an address."""

    url: PostgresUrl

    @property
    def name(self) -> str:
        return self.url.name

    def runs(self, process: str) -> PostgresStore:
        return PostgresStore(self.url, process)

    def ledger(self, *, replays_for: float = KEPT_SECONDS) -> SqlLedger:
        database = PostgresDatabase.at(self.url)
        return SqlLedger(database, LeasedOwner(database), replays_for=replays_for)

    def sandbox_records(self) -> SqlSandboxRecords:
        return SqlSandboxRecords(PostgresDatabase.at(self.url), OwnerLeases())

    def sandbox_writer(self, *, keep: float | None = None) -> SqlSandboxWriter:
        database = PostgresDatabase.at(self.url)
        return PostgresSandboxWriter(
            database, OwnerLeases(), lambda: LeasedOwner(database), keep=keep
        )

    def inspection(self) -> PostgresInspection:
        return PostgresInspection(self.url)

    def examine(self) -> Health:
        return examine(self.url)

    def prune_sandboxes(self, keep: float) -> Dropped:
        return sandbox_cleanup.prune(PostgresDatabase.at(self.url), keep)


class PostgresSandboxWriter(SqlSandboxWriter):
    """One that goes on after a record that can't be written: it alone is taken back."""

    def _write_one(self, connection: Connection, write: Write, owner: str) -> None:
        connection.execute("SAVEPOINT record")
        try:
            super()._write_one(connection, write, owner)
        except DatabaseFault as fault:
            if may_succeed_again(fault):
                raise
            connection.execute("ROLLBACK TO SAVEPOINT record")
            log.exception("a record of a sandbox could not be written")
        else:
            connection.execute("RELEASE SAVEPOINT record")


class PostgresInspection:
    """Reads the store at an address; it has to exist."""

    def __init__(self, url: PostgresUrl) -> None:
        self.name = url.name
        self._database = PostgresDatabase.at(url)
        self._closed = False

    async def ask(self, question: Callable[[View], T]) -> T:
        """The answer to a question, asked in a thread, in one read transaction."""
        url = self._database.url
        answer = self._database.read(lambda c: question(PostgresView(c, url)))
        return await asyncio.wrap_future(answer)

    def detector(self) -> PostgresChangeDetector:
        """One for whoever follows what changes; to be closed."""
        return PostgresChangeDetector(self._database)

    def close(self) -> None:
        """Let go of it; a second time it does nothing."""
        if not self._closed:
            self._closed = True
            self._database.close()


class PostgresView(SqlView):
    """The store at one moment."""

    def __init__(self, connection: Connection, url: PostgresUrl) -> None:
        super().__init__(connection)
        self._url = url

    def state(self, now: float) -> StoreState:
        connection = self._connection
        tables = [
            (str(name), int(size)) for name, size in connection.execute(TABLES, (self._url.schema,))
        ]
        (server,) = connection.execute("SHOW server_version").fetchone()
        (number,) = connection.execute("SELECT version FROM schema_version").fetchone()
        alive = frozenset(str(row[0]) for row in connection.execute(ALIVE))
        whole = sum(size for _, size in tables)
        return StoreState(
            *worker_views.at_work(connection, now),
            int(number),
            whole,
            0,
            f"PostgreSQL {server}",
            tables[:5],
            alive,
        )


def examine(url: PostgresUrl) -> Health:
    """Look at a store without making or changing anything."""
    known = schema.migrations()[-1][0]
    found: dict[str, Any] = {"path": url.name, "exists": False, "writable": False}
    try:
        connection = PostgresConnection(connect(url))
        try:
            found["writable"] = True
            number = schema.version(connection, url)
            if number is not None:
                found |= {"exists": True, "schema_version": number, **_contents(connection, url)}
        finally:
            connection.close()
    except (DatabaseFault, psycopg.Error, HoldfastError) as error:
        found["problem"] = as_store_error(error, url.name)
    return Health(known_schema=known, **found)


def _concerns(connection: PostgresConnection) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    settings = dict(connection.execute(SETTINGS).fetchall())
    if settings["fsync"] == "off" or settings["full_page_writes"] == "off":
        found.append((
            "the server does not write to its disk before it says so (fsync or full_page_writes"
            " is off)",
            "turn both on: what was acknowledged may be lost at a power cut",
        ))  # fmt: skip
    (standbys, synchronous) = connection.execute(STANDBYS).fetchone() or (0, 0)
    if standbys and not synchronous:
        found.append((
            "the server has standbys and none of them is synchronous",
            "name one in synchronous_standby_names: acknowledged steps may be lost at a failover",
        ))  # fmt: skip
    (used, most) = connection.execute(CONNECTIONS).fetchone() or (0, 1)
    if used > most * 0.8:
        found.append((
            f"{used} of the server's {most} connections are in use",
            "raise max_connections, or put a pooler in transaction mode between (listen=false)",
        ))  # fmt: skip
    return found


def _contents(connection: PostgresConnection, url: PostgresUrl) -> dict[str, Any]:
    connection.script("BEGIN READ ONLY", schema.settings(url))
    try:
        return {
            "bytes": sum(int(size) for _, size in connection.execute(TABLES, (url.schema,))),
            "runs": {s: n for s, n in connection.execute(COUNTS) if n},
            "workers": [str(row[0]) for row in connection.execute(ALIVE)],
            "concerns": _concerns(connection),
        }
    finally:
        connection.script("ROLLBACK")
