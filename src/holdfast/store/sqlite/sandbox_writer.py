"""Writes what sandboxes did: in order, in batches, off everybody's way.

`put` costs its caller a queue entry. A thread gathers for a moment and commits what there is,
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
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import StoreError
from holdfast.store.sqlite import sandbox_rows
from holdfast.store.sqlite.process_locks import Owner, is_free, owners_folder
from holdfast.store.sqlite.sandbox_cleanup import prune
from holdfast.store.sqlite.schema import as_store_error, connect

log = logging.getLogger("holdfast")

GATHER = 0.02
"""Seconds to wait for company: a sandbox's start and its first command come together."""
AGAIN = 1.0
"""Seconds until what could not be written is tried again."""
PRUNE_EVERY = 86_400.0
"""Seconds between two looks for records older than are to be kept."""
MOST = 100_000
"""Records that may wait."""

Write = Callable[[sqlite3.Connection, str], None]


class SandboxWriter:
    """One process's records of sandboxes, on their way to the store at `path`."""

    def __init__(self, path: Path, *, gather: float = GATHER, keep: float | None = None) -> None:
        self.path = path
        self._gather = gather
        self._keep = keep
        self._prune_at = 0.0
        self._news = threading.Condition()
        self._waiting: list[Write] = []
        self._busy = False
        self._round = 0
        """How many batches were begun; `_failed_in` is the last of them that failed."""
        self._failed_in = 0
        self._hurry = False
        self._closing = False
        self._failure: StoreError | None = None
        self._thread = threading.Thread(target=self._work, name="holdfast-sandboxes", daemon=True)
        self._thread.start()

    def put(self, write: Write) -> None:
        """Have something written, after all that was put before; usable from any thread."""
        with self._news:
            if self._closing:
                raise StoreError(f"the records of sandboxes in {self.path} are closed")
            if len(self._waiting) >= MOST:
                raise self._failure or StoreError(f"{self.path} can't be written fast enough")
            self._waiting.append(write)
            self._news.notify_all()

    def flush(self) -> None:
        """Wait until all that was put is in the store; raises StoreError if it can't be written."""
        with self._news:
            self._hurry = True
            self._failure = None
            since = self._round  # what was begun before may fail for a reason that is gone by now
            self._news.notify_all()
            self._news.wait_for(
                lambda: self._failed_in > since or not (self._waiting or self._busy)
            )
            self._hurry = False
            if self._failure is not None:
                raise self._failure

    def close(self) -> None:
        """Write what was put, and let go of the file; raises StoreError for what is lost."""
        with self._news:
            if self._closing:
                return
            self._closing = True
            self._news.notify_all()
        self._thread.join()
        if self._waiting and self._failure is not None:
            raise self._failure

    # ------------------------------------------------------------------- the thread

    def _work(self) -> None:
        connection: sqlite3.Connection | None = None
        owner: Owner | None = None
        while batch := self._next():
            try:
                if connection is None or owner is None:
                    owner = owner or Owner(owners_folder(self.path))
                    connection = connect(self.path)
                    connection.execute("PRAGMA synchronous = NORMAL")
                    sweep(connection, self.path)
                self._prune(connection)
                _commit(connection, batch, owner.id)
            except (sqlite3.Error, StoreError, OSError) as error:
                if self._failed(batch, error):
                    break
            else:
                self._written()
        if connection is not None:
            connection.close()
        if owner is not None:
            owner.close()

    def _prune(self, connection: sqlite3.Connection) -> None:
        """Drop what is older than is wanted: when the first is written, and then once a day."""
        if self._keep is not None and time.monotonic() >= self._prune_at:
            prune(connection, time.time() - self._keep)
            self._prune_at = time.monotonic() + PRUNE_EVERY

    def _next(self) -> list[Write]:
        """All that waits, once something does and a moment has passed; nothing at the end."""
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._closing)
            if self._waiting and self._gather and not self._closing:
                self._news.wait_for(lambda: self._closing or self._hurry, self._gather)
            batch, self._waiting = self._waiting, []
            self._busy = True
            self._round += 1
            return batch

    def _written(self) -> None:
        with self._news:
            self._busy, self._failure = False, None
            self._news.notify_all()

    def _failed(self, batch: list[Write], error: Exception) -> bool:
        """Keep what could not be written; whether to give up."""
        with self._news:
            if self._failure is None:
                log.error("the records of sandboxes can't be written, trying again: %s", error)
            known = isinstance(error, StoreError)
            self._failure = error if known else as_store_error(error, self.path)
            self._waiting = batch + self._waiting
            self._busy, self._failed_in = False, self._round
            self._news.notify_all()
            if not self._closing:
                self._news.wait_for(lambda: self._closing or self._hurry, AGAIN)
                return False
            return True


def _commit(connection: sqlite3.Connection, batch: list[Write], owner: str) -> None:
    """Write them in one transaction; one that can never be written is left out, and said so."""
    try:
        with _transaction(connection):
            for write in batch:
                write(connection, owner)
    except sqlite3.OperationalError:
        raise  # the file's fault, not theirs
    except Exception:
        if len(batch) == 1:
            log.exception("a record of a sandbox could not be written")
            return
        for write in batch:
            _commit(connection, [write], owner)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Generator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def sweep(connection: sqlite3.Connection, path: Path) -> None:
    """Close what processes left open that are gone."""
    folder = owners_folder(path)
    dead = [owner for owner in sandbox_rows.owners(connection) if is_free(folder, owner)]
    if not dead:
        return
    with _transaction(connection):
        for owner in dead:
            sandbox_rows.close_all_of(connection, owner, time.time())
    for owner in dead:
        (folder / owner).unlink(missing_ok=True)
