"""A store in PostgreSQL within this process: one thread that writes, a few that read.

What `store/sqlite/database.py` says of batches and questions holds here. A batch is one
transaction. It begins with locks that all who write to the store take: exclusively, and so one
after the other as in SQLite, or shared, where every operation in it locks the rows it decides by
(see `sharing.py`).

A connection that is lost is made anew and the batch is tried again. If it was lost while it
committed, the server is asked what became of it, by the mark that every batch leaves with its
commit: what is reported as done is done, and nothing is done twice, also on another server after
a failover.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import HoldfastError
from holdfast.store.base import Change
from holdfast.store.connection import Connection, DatabaseFault
from holdfast.store.postgres import log_order, schema, sharing
from holdfast.store.postgres.clock import DatabaseClock
from holdfast.store.postgres.connection import (
    FAULTS,
    PostgresConnection,
    as_store_error,
    connect,
    is_lost,
    may_succeed_again,
)
from holdfast.store.postgres.transaction import NotShared, PostgresTransaction
from holdfast.store.postgres.url import PostgresUrl
from holdfast.store.sqlite.database import Database, Item, Result, perform

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds that a server which is gone is waited for, before those who write are told."""
READERS_PATIENCE = 10.0
IDLE_SECONDS = 5
"""How long the server keeps a transaction, and its locks, of a process that says nothing more: one
that was stopped or cut off would hold all others up until the network gives it up."""
PAUSES = (0.01, 0.05, 0.2, 0.5, 1.0)
"""Seconds between tries; the last one again and again."""


FORGOTTEN_SECONDS = 86_400
"""A mark that is older is nobody's who still asks for it."""


class _Unknown(Exception):
    """The connection was lost while the batch of this mark committed."""

    def __init__(self, mark: int, results: list[Result], change: Change) -> None:
        super().__init__(mark)
        self.mark, self.results, self.change = mark, results, change


class PostgresDatabase(Database):
    """The store at an address; `at` gives the one that is shared."""

    def __init__(self, url: PostgresUrl) -> None:
        self.url = url
        self.clock = DatabaseClock()
        self._marked_as = secrets.token_hex(8)
        self._mark = 0
        """Of the last batch that was tried."""
        self._writing: PostgresConnection | None = None
        self._asking: list[PostgresConnection] = []
        super().__init__(url.name)

    @classmethod
    def at(cls, url: PostgresUrl) -> PostgresDatabase:
        """The one of this address in this process; nothing is touched before it is used."""
        return cls._share(url.name, lambda: cls(url))

    def _disconnect(self) -> None:
        for connection in (*self._asking, self._writing):
            if connection is not None:
                connection.close()

    # ------------------------------------------------------------------------- writing

    def _carry_out(self, items: list[Item], *, durable: bool) -> tuple[list[Result], Change]:
        if not items:
            return [], Change()
        try:
            return self._try(items, durable=durable)
        except Exception as error:  # noqa: BLE001 - whatever it is, it goes to who submitted it
            if len(items) == 1 or is_lost(error):
                failure = self._wrapped(error)
                return [(done, None, failure) for _, done in items], Change()
        results: list[Result] = []
        change = Change()
        for item in items:
            single, more = self._carry_out([item], durable=durable)
            results += single
            change = Change(
                change.mail | more.mail, {**change.ended, **more.ended}, change.due or more.due
            )
        return results, change

    def _wrapped(self, error: Exception) -> HoldfastError:
        if isinstance(error, HoldfastError):
            return error
        wrapped = as_store_error(error, self.name)
        wrapped.__cause__ = error
        return wrapped

    def _try(self, items: list[Item], *, durable: bool) -> tuple[list[Result], Change]:
        """Carry out a batch, again if it was the connection's or another batch's fault."""
        ends, tries = time.monotonic() + PATIENCE, 0
        plan = sharing.plan([operation for operation, _ in items])
        while True:
            try:
                return self._transaction(self._ready_to_write(), items, plan, durable=durable)
            except NotShared:
                plan = None
                continue
            except _Unknown as unknown:
                if self._has_committed(unknown.mark, ends):
                    return unknown.results, unknown.change
            except (DatabaseFault, UnicodeEncodeError, *FAULTS) as error:
                if plan is not None and not is_lost(error):
                    plan = None  # two who created the same: alone, one of them finds the other's
                    continue
                if not may_succeed_again(error) or time.monotonic() > ends:
                    raise
            time.sleep(PAUSES[min(tries, len(PAUSES) - 1)])
            tries += 1

    def _ready_to_write(self) -> PostgresConnection:
        if self._writing is None or self._writing.broken:
            fresh = PostgresConnection(connect(self.url))
            try:
                schema.prepare(fresh, self.url)
                self.clock.read(fresh)
                fresh.execute(
                    f"DELETE FROM {self.url.schema}.batch_marks WHERE at < ?",  # noqa: S608
                    (self.clock.now() - FORGOTTEN_SECONDS,),
                )
            except BaseException:
                fresh.close()
                raise
            self._writing = fresh
        return self._writing

    def _transaction(
        self,
        connection: PostgresConnection,
        items: list[Item],
        plan: sharing.Plan | None,
        *,
        durable: bool,
    ) -> tuple[list[Result], Change]:
        operations = [operation for operation, _ in items]
        try:
            connection.script(
                "BEGIN",
                schema.settings(self.url),
                f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'",
                f"SET LOCAL synchronous_commit = {'on' if durable else 'off'}",
                *self._locks(plan),
            )
            txid, base = connection.execute(log_order.NUMBER).fetchone() or (0, 0)
            transaction = PostgresTransaction(
                connection, operations=operations, number=base + txid, shared=plan is not None
            )
            if plan is not None:
                sharing.look_up(transaction, plan)
            results = perform(transaction, items)
        except BaseException:
            self._roll_back(connection)
            raise
        change = transaction.change()
        self._mark += 1
        try:
            connection.script(self._marking(self._mark), "COMMIT")
        except DatabaseFault as fault:
            if is_lost(fault) or connection.broken:
                connection.close()
                raise _Unknown(self._mark, results, change) from fault
            self._roll_back(connection)
            raise
        return results, change

    def _locks(self, plan: sharing.Plan | None) -> list[str]:
        """The locks of a batch, always in this order: for itself, but that of the runs if it may
        share it."""
        found: list[str] = []
        if plan is None or plan.runs:
            found.append(schema.locked(self.url, shared=plan is not None))
        return found + [
            schema.locked(self.url, what=f" {what}")
            for what in ("ledger", "sandboxes")
            if plan is None or what in plan.apart
        ]

    def _roll_back(self, connection: PostgresConnection) -> None:
        try:
            if not connection.broken and connection.in_transaction:
                connection.script("ROLLBACK")
        except DatabaseFault:
            connection.close()  # the server ends the transaction with it

    def _marking(self, mark: int | None) -> str:
        """Set this process's mark; None: leave it as it is. Waits for whoever is setting it."""
        kept = "batch_marks.mark" if mark is None else "excluded.mark"
        return f"""INSERT INTO {self.url.schema}.batch_marks (id, mark, at)
        VALUES ('{self._marked_as}', {mark or 0}, extract(epoch FROM clock_timestamp()))
        ON CONFLICT (id) DO UPDATE SET mark = {kept}, at = excluded.at RETURNING mark"""  # noqa: S608

    def _has_committed(self, mark: int, ends: float) -> bool:
        """What became of a batch whose end was not heard of; waits until that is known."""
        tries = 0
        while True:
            try:
                found = self._ready_to_write().execute(self._marking(None))
                return found.fetchone() == (mark,)
            except (DatabaseFault, *FAULTS) as error:
                if not is_lost(error) or time.monotonic() > ends:
                    raise
            time.sleep(PAUSES[min(tries, len(PAUSES) - 1)])
            tries += 1

    # ------------------------------------------------------------------------- reading

    def _ask(self, question: Callable[[Connection], T], lenient: bool) -> T:
        ends, tries = time.monotonic() + READERS_PATIENCE, 0
        while True:
            try:
                return self._ask_once(question)
            except (DatabaseFault, *FAULTS) as error:
                if not may_succeed_again(error) or time.monotonic() > ends:
                    raise as_store_error(error, self.name) from error
            time.sleep(PAUSES[min(tries, len(PAUSES) - 1)])
            tries += 1

    def _ask_once(self, question: Callable[[Connection], T]) -> T:
        connection = self._connection_to_read()
        connection.script(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", schema.settings(self.url)
        )
        try:
            return question(connection)
        finally:
            self._roll_back(connection)

    def _connection_to_read(self) -> PostgresConnection:
        found: PostgresConnection | None = getattr(self._own, "postgres", None)
        if found is None or found.broken:
            fresh = PostgresConnection(connect(self.url))
            with self._lock:
                if found in self._asking:
                    self._asking.remove(found)
                self._asking.append(fresh)
            found = self._own.postgres = fresh
        return found
