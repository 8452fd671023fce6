"""The ledger's thread: many callers, one transaction for all that wait.

An operation is a function of the connection. It looks first and writes last: one that raises has
written nothing, so its neighbours in the same transaction are not harmed. Its result reaches the
caller only after the commit.

What must reach the disk waits for it in the thread, as many to a commit as there are. What need
not is done on the spot, in the caller's thread, if the file is free that very moment: it costs
some 40 µs, where a way through the thread and back costs several times that.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from holdfast.errors import StoreError
from holdfast.store.sqlite.schema import as_store_error, connect

T = TypeVar("T")
BATCH = 256
_CHECKPOINT_EVERY = 500


@dataclass(frozen=True, slots=True)
class _Task:
    run: Callable[[sqlite3.Connection], Any]
    durable: bool
    future: Future[Any]


class LedgerThread:
    """Runs operations in order, as many to a commit as are waiting."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._connection = connect(path)
        self._quick, self._lock = self._connection, threading.Lock()
        if str(path) != ":memory:":
            self._quick = connect(path)
            self._quick.execute("PRAGMA synchronous = NORMAL")
            self._quick.execute("PRAGMA busy_timeout = 0")
            # Moving the log into the file waits for the disk: the thread's business.
            self._quick.execute("PRAGMA wal_autocheckpoint = 0")
        self._full = True
        self._closed = False
        self._written = 0
        self._pending, self._counting = 0, threading.Lock()
        self._checkpoint_at = _CHECKPOINT_EVERY
        self._thread = threading.Thread(target=self._loop, name="holdfast-ledger", daemon=True)
        self._thread.start()

    async def submit(self, run: Callable[[sqlite3.Connection], T], *, durable: bool = True) -> T:
        """The operation's result, after its commit.

        `durable` waits for the disk; without it the commit survives the death of the process
        but not a power cut.
        """
        if not durable and not self._closed:
            done, value = self._at_once(run)
            if done:
                return value
        # Shielded: what was sent is carried out, whether or not its caller is cancelled meanwhile.
        return await asyncio.shield(asyncio.wrap_future(self.send(run, durable=durable)))

    def _at_once(self, run: Callable[[sqlite3.Connection], T]) -> tuple[bool, Any]:
        """Do it here and now if nobody else is writing; else (False, None)."""
        # What was sent before is seen by what comes after: nothing overtakes the thread.
        if self._pending or not self._lock.acquire(blocking=False):
            return False, None
        connection = self._quick
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                value = run(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname in ("SQLITE_BUSY", "SQLITE_LOCKED"):
                return False, None
            raise as_store_error(error, self._path) from error
        except sqlite3.Error as error:
            raise as_store_error(error, self._path) from error
        finally:
            self._lock.release()
        self._written += 1
        if self._written == self._checkpoint_at:
            self.send(_nothing, durable=False)
        return True, value

    def send(self, run: Callable[[sqlite3.Connection], T], *, durable: bool = True) -> Future[T]:
        """Start the operation; usable from any thread."""
        if self._closed:
            raise StoreError(f"the ledger at {self._path} is closed")
        future: Future[T] = Future()
        with self._counting:
            self._pending += 1
        self._tasks.put(_Task(run, durable, future))
        return future

    def close(self) -> None:
        """Finish what was sent, then let go of the file."""
        if not self._closed:
            self._closed = True
            self._tasks.put(None)
            self._thread.join()

    def _loop(self) -> None:
        while True:
            first = self._tasks.get()
            if first is None:
                self._close()
                return
            batch, last = [first], False
            while len(batch) < BATCH:
                try:
                    more = self._tasks.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    last = True
                    break
                batch.append(more)
            wanted = [task for task in batch if task.future.set_running_or_notify_cancel()]
            with self._lock:
                self._commit(wanted)
                with self._counting:
                    self._pending -= len(batch)
                if self._written >= self._checkpoint_at:
                    self._checkpoint_at = self._written + _CHECKPOINT_EVERY
                    self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            if last:
                self._close()
                return

    def _close(self) -> None:
        self._connection.close()
        if self._quick is not self._connection:
            self._quick.close()

    def _commit(self, batch: list[_Task]) -> None:
        results: list[tuple[_Task, Any, BaseException | None]] = []
        try:
            self._sync(full=any(task.durable for task in batch))
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                for task in batch:
                    try:
                        results.append((task, task.run(self._connection), None))
                    except sqlite3.Error:
                        raise
                    except Exception as error:  # noqa: BLE001  it belongs to the caller
                        results.append((task, None, error))
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            if len(batch) > 1:  # find out whose fault it is
                for task in batch:
                    self._commit([task])
                return
            for task in batch:
                task.future.set_exception(as_store_error(error, self._path))
            return
        for task, value, error in results:
            if error is not None:
                task.future.set_exception(error)
            else:
                task.future.set_result(value)

    def _sync(self, *, full: bool) -> None:
        if full != self._full:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
            self._full = full


def _nothing(_connection: sqlite3.Connection) -> None:
    """Wake the thread, for it to move the log into the file."""
