"""Writes what sandboxes did: in order, with everybody else's commits, off everybody's way.

`put` costs its caller a list entry; the database's writer takes all there is with its next commit,
without waiting for the disk: a record survives the death of the process as soon as it is
committed, and a power cut soon after. After `flush` and `close` everything is there.

What can't be written is kept and tried again. It is bounded: when too much has piled up, `put`
raises, since what can't be recorded must not go unnoticed.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.errors import HoldfastError, StoreError
from holdfast.records.sandboxes import CommandRecord, EgressRecord, SandboxRecord
from holdfast.store.connection import Connection, DatabaseFault
from holdfast.store.sandboxes import Dropped
from holdfast.store.sqlite import sandbox_cleanup, sandbox_rows
from holdfast.store.sqlite.database import Apart, Database, Transaction
from holdfast.store.sqlite.process_locks import (
    FileOwner,
    Owner,
    OwnerFiles,
    Owners,
    owners_folder,
)

log = logging.getLogger("holdfast")

AGAIN = 1.0
"""Seconds until what could not be written is tried again."""
PRUNE_EVERY = 86_400.0
"""Seconds between two looks for records older than are to be kept."""
MOST = 100_000
"""Records that may wait."""

Write = Callable[[Connection, str], None]


class SqlSandboxWriter:
    """One process's records of sandboxes, on their way to a database."""

    def __init__(
        self,
        database: Database,
        owners: Owners,
        make_owner: Callable[[], Owner],
        *,
        keep: float | None,
    ) -> None:
        self._database, self._owners, self._make_owner = database, owners, make_owner
        self._owner: Owner | None = None
        self._keep = keep
        self._prune_at = 0.0
        self._news = threading.Condition()
        self._waiting: list[Write] = []
        self._sent: list[Write] = []
        """Those in the transaction that is under way."""
        self._under_way = 0
        """Operations that the database has yet to report."""
        self._begun = self._ended = self._failed_in = 0
        """How many batches were begun and have ended, and the last of them that failed."""
        self._swept = False
        self._closing = False
        self._failure: HoldfastError | None = None
        self._timer: threading.Timer | None = None

    def add_sandbox(self, record: SandboxRecord) -> None:
        self.put(lambda c, owner: sandbox_rows.add_sandbox(c, owner, record))

    def stop_sandbox(self, record: SandboxRecord) -> None:
        self.put(lambda c, _: sandbox_rows.stop_sandbox(c, record))

    def add_command(self, record: CommandRecord) -> None:
        self.put(lambda c, owner: sandbox_rows.add_command(c, owner, record))

    def end_command(self, record: CommandRecord) -> None:
        self.put(lambda c, _: sandbox_rows.end_command(c, record))

    def add_egress(self, record: EgressRecord) -> None:
        self.put(lambda c, _: sandbox_rows.add_egress(c, record))

    def put(self, write: Write) -> None:
        """Have something written, after all that was put before; usable from any thread."""
        with self._news:
            if self._closing:
                raise StoreError(f"the records of sandboxes in {self._database.name} are closed")
            if len(self._waiting) + len(self._sent) >= MOST:
                name = self._database.name
                raise self._failure or StoreError(f"{name} can't be written fast enough")
            self._waiting.append(write)
            if self._timer is None:
                self._send()

    def flush(self) -> None:
        """Wait until all that was put is in the store; raises StoreError if it can't be written."""
        with self._news:
            since = self._begun  # what was begun before may fail for a reason that is gone by now
            self._news.wait_for(lambda: self._ended >= since)
            self._failure = None
            self._send()
            self._news.wait_for(
                lambda: self._failed_in > since or not (self._waiting or self._under_way)
            )
            if self._failure is not None:
                raise self._failure

    def close(self) -> None:
        """Write what was put, and let go of the file; raises StoreError for what is lost."""
        with self._news:
            if self._closing:
                return
            self._closing = True
            if self._timer is not None:
                self._timer.cancel()
        try:
            self.flush()
        finally:
            if self._owner is not None:
                self._owner.close()
            self._database.close()

    # ---------------------------------------------------------------------- with the lock

    def _send(self) -> None:
        """Have the writer take what waits, unless it is about to."""
        if self._waiting and not self._under_way:
            self._begun += 1
            self._submit(self._write_all, self._written)

    def _submit(
        self,
        operation: Callable[[Transaction], object],
        then: Callable[[object, HoldfastError | None], None],
    ) -> None:
        self._under_way += 1

        def done(value: object, error: HoldfastError | None) -> None:
            with self._news:
                self._under_way -= 1
                then(value, error)
                self._news.notify_all()

        self._database.submit(
            [(Apart("sandboxes", operation), done)],
            lambda results, _: done(*results[0][1:]),
            durable=False,
        )

    def _written(self, _value: object, error: HoldfastError | None) -> None:
        self._ended += 1
        if error is not None:
            self._failed(error)
            return
        self._swept, self._sent, self._failure = True, [], None
        if self._keep is not None and time.monotonic() >= self._prune_at:
            self._prune_at = time.monotonic() + PRUNE_EVERY
            self._prune(time.time() - self._keep)
        self._send()

    def _failed(self, error: HoldfastError) -> None:
        """Keep what could not be written, and try again in a while."""
        if self._failure is None:
            log.error("the records of sandboxes can't be written, trying again: %s", error)
        self._waiting, self._sent = self._sent + self._waiting, []
        self._failure, self._failed_in = error, self._begun
        if not self._closing and self._timer is None:
            self._timer = threading.Timer(AGAIN, self._try_again)
            self._timer.daemon = True
            self._timer.start()

    def _try_again(self) -> None:
        with self._news:
            self._timer = None
            if not self._closing:
                self._send()

    def _prune(self, before: float) -> None:
        """Drop what is older than is wanted: when the first is written, and then once a day."""

        def then(dropped: object, error: HoldfastError | None) -> None:
            if error is not None:
                log.error("old records of sandboxes can't be dropped: %s", error)
            elif dropped != Dropped():
                self._prune(before)
                return
            self._send()

        self._submit(lambda tx: sandbox_cleanup.drop(tx.connection, before), then)

    # ------------------------------------------------------------------ the writer's thread

    def _write_all(self, tx: Transaction) -> None:
        if self._owner is None:
            self._owner = self._make_owner()
        if not self._swept:
            self._owner.hold(tx.connection)
            close_dead(tx.connection, self._owners)
        with self._news:
            # A batch that had to be begun again finds what it took before.
            self._sent, self._waiting = self._sent + self._waiting, []
            batch = list(self._sent)
        for write in batch:
            self._write_one(tx.connection, write, self._owner.id)

    def _write_one(self, connection: Connection, write: Write, owner: str) -> None:
        """Write a record; one that can never be written is left out, and said so."""
        try:
            write(connection, owner)
        except (sqlite3.OperationalError, DatabaseFault):
            raise  # the file's fault, not the record's
        except Exception:
            log.exception("a record of a sandbox could not be written")


def dead_owners(connection: Connection, owners: Owners) -> list[str]:
    """Processes that are gone and have left something open."""
    return [o for o in sandbox_rows.owners(connection) if owners.is_dead(connection, o)]


def close_dead(connection: Connection, owners: Owners) -> None:
    """Close what processes left open that are gone."""
    for owner in dead_owners(connection, owners):
        sandbox_rows.close_all_of(connection, owner, time.time())
        owners.forget(connection, owner)


class SqliteSandboxWriter(SqlSandboxWriter):
    """One process's records of sandboxes, on their way to the store at `path`."""

    def __init__(self, path: Path, *, keep: float | None = None) -> None:
        folder = owners_folder(path)
        super().__init__(
            Database.open(path), OwnerFiles(folder), lambda: FileOwner(folder), keep=keep
        )
