"""A store's records moved to another place and kind: a SQLite file to PostgreSQL, or back.

What is copied is the source at one moment, table by table, some rows at a time. Runs, schedules and
whatever else workers would act on come last, in one transaction: until then there is nothing to do
in the copy, and from then on it is whole. Every table is read back and compared, row by row.

A copy that was interrupted is gone on with by the same command. What never changes once it is
written (journals, messages, streams) is taken up where it stopped; the rest is copied anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.errors import Refused, StoreError, UsageError
from holdfast.ids import new_id
from holdfast.store import opener
from holdfast.store.connection import Connection
from holdfast.store.postgres.url import PostgresUrl, is_postgres
from holdfast.store.sqlite.database import Database, Transaction, nothing

AT_ONCE: Final = 500
"""Rows in one transaction; a blob has up to some megabytes."""

GROWING: Final = {
    "events": ("run_id", "seq"),
    "blobs": ("run_id", "hash"),
    "chunks": ("run_id", "stream", "idx"),
    "messages": ("id",),
    "receipts": ("run_id", "message"),
    "egress": ("id",),
}
"""Tables whose rows never change, by what they are sorted by."""
CHANGING: Final = {
    "waits": ("run_id", "key"),
    "inbox": ("id",),
    "webhooks": ("token",),
    "attributes": ("run_id", "name"),
    "calls": ("rowid",),
    "call_replays": ("call_id",),
    "spend": ("scope",),
    "spend_limits": ("scope",),
    "spend_parents": ("child",),
    "call_owners": ("id",),
    "virtual_keys": ("id",),
    "sandboxes": ("rowid",),
    "commands": ("rowid",),
    "begun": ("run_id", "key"),
    "approvals": ("id",),
    "secrets": ("name",),
    "rates": ("name",),
    "published": ("run_id", "name"),
    "updates": ("chain", "id"),
    "deleted": ("run_id",),
    "spend_queue": ("scope", "number"),
    "taken": ("run_id", "name", "match"),
    "firings": ("schedule", "at"),
    "kept": ("name",),
    "subscriptions": ("workflow", "event"),
    "holds": ("run_id",),
    "turns": ("id",),
    "next_turns": ("workflow",),
}
LAST: Final = {
    "runs": ("rowid",),
    "workers": ("id",),
    "schedules": ("name",),
    "subscription_news": ("workflow", "message"),
}
"""What workers act on."""
EVERY: Final = {**GROWING, **CHANGING, **LAST}
MADE_ANEW: Final = frozenset({"identity", "run_counts"})
"""Tables that each store has for itself."""
NUMBERED: Final = ("messages", "inbox", "egress", "turns")
"""Tables whose ids go on from the highest: SQLite sees to that by itself."""
GO_ON: Final = """
SELECT setval(pg_get_serial_sequence('{table}', 'id'), coalesce(max(id), 0) + 1, false) FROM {table}
"""

PARTIAL: Final = "copy of "
"""What the identity of a copy begins with that is not whole yet."""


@dataclass(frozen=True)
class Copied:
    """What a copy has come to."""

    rows: dict[str, int]
    """How many of each table, empty ones left out; every one was read back and compared."""
    resumed: bool


def copy(source: str | Path, target: str | Path) -> Copied:
    """Copy a store; the target may not be there, or be empty, or a part of the same copy."""
    if opener.is_same(source, target):
        raise UsageError("a store can't be copied onto itself")
    health = opener.examine(source)
    if health.problem is not None:
        raise health.problem
    if not health.exists:
        raise StoreError(f"there is no store at {health.path}")
    if health.workers:
        raise Refused(
            f"{health.path} has workers: {', '.join(health.workers)}",
            hint="stop them first: what they did from now on would not be in the copy",
        )
    one = _database(source)
    try:
        two = _database(target)
        try:
            one.write(nothing).result()  # both have the newest schema then
            two.write(nothing).result()
            return one.read(lambda connection: _Copy(connection, two).make()).result()
        finally:
            two.close()
    finally:
        one.close()


def _database(name: str | Path) -> Database:
    if not is_postgres(name):
        return Database.open(Path(name))
    opener.parts(name)  # says so if the driver is missing
    from holdfast.store.postgres.database import PostgresDatabase  # not everybody has its driver

    return PostgresDatabase.at(PostgresUrl.parse(str(name)))


class _Copy:
    """One attempt at a copy: the source at one moment, and where it goes."""

    def __init__(self, source: Connection, target: Database) -> None:
        self._source, self._target = source, target
        (identity,) = source.execute("SELECT id FROM identity").fetchone()
        self._mark = PARTIAL + str(identity)
        self._columns = {table: _columns(source, table) for table in EVERY}

    def make(self) -> Copied:
        resumed = self._target.write(self._begin).result()
        for table, key in GROWING.items():
            reached = self._target.read(lambda c, t=table: _reached(c, t)).result()
            self._fill(table, key, reached)
        for table, key in CHANGING.items():
            self._target.write(lambda tx, t=table: _clear(tx, t)).result()
            self._fill(table, key, None)
        rows = {table: self._compare(table) for table in (*GROWING, *CHANGING)}
        last = {table: list(self._rows(table, key, None)) for table, key in LAST.items()}
        self._target.write(lambda tx: self._finish(tx, last)).result()
        rows |= {table: len(found) for table, found in last.items()}
        return Copied({table: count for table, count in rows.items() if count}, resumed)

    def _begin(self, tx: Transaction) -> bool:
        """Mark the target as a copy that is not whole; True if it was one of this source."""
        (identity,) = tx.execute("SELECT id FROM identity").fetchone()
        if identity == self._mark:
            return True
        if str(identity).startswith(PARTIAL):
            raise Refused(
                f"{self._target.name} is a part of a copy of another store",
                hint="finish that copy, or name another place",
            )
        for table in EVERY:
            if table != "workers" and tx.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone():  # noqa: S608
                raise Refused(
                    f"{self._target.name} is not empty: it has {table}",
                    hint="a copy replaces nothing: name a place that is empty",
                )
        tx.execute("UPDATE identity SET id = ?", (self._mark,))
        return False

    def _fill(self, table: str, key: Sequence[str], after: tuple[Any, ...] | None) -> None:
        insert = _insert(table, self._columns[table])
        batch: list[tuple[Any, ...]] = []
        for row in self._rows(table, key, after):
            batch.append(row)
            if len(batch) == AT_ONCE:
                self._write(insert, batch)
                batch = []
        if batch:
            self._write(insert, batch)

    def _write(self, insert: str, batch: list[tuple[Any, ...]]) -> None:
        self._target.write(lambda tx: _many(tx, insert, batch), durable=False).result()

    def _rows(
        self, table: str, key: Sequence[str], after: tuple[Any, ...] | None
    ) -> Iterator[tuple[Any, ...]]:
        return _sorted(self._source, table, self._columns[table], key, after)

    def _compare(self, table: str) -> int:
        key, columns = _comparable(table), self._columns[table]
        here = _digest(_sorted(self._source, table, columns, key, None))
        there = self._target.read(lambda c: _digest(_sorted(c, table, columns, key, None))).result()
        if here != there:
            raise StoreError(
                f"{table}: the copy has {there[0]:,} rows that differ from the {here[0]:,} of the"
                " source, which has changed since the copy was begun",
                hint=f"remove {self._target.name} and copy again",
            )
        return here[0]

    def _finish(self, tx: Transaction, last: dict[str, list[tuple[Any, ...]]]) -> None:
        for table, rows in last.items():
            _clear(tx, table)
            if rows:
                _many(tx, _insert(table, self._columns[table]), rows)
            columns, key = self._columns[table], _comparable(table)
            there = _digest(_sorted(tx.connection, table, columns, key, None))
            if there != _digest(_sorted_rows(rows, columns, key)):
                raise StoreError(f"{table}: what was written can't be read back as it was")
        # Whoever had a run in hand there does not have it here: their leases have ended.
        tx.execute("UPDATE workers SET boot = '', lease_until = 0")
        if is_postgres(self._target.name):
            for table in NUMBERED:
                tx.execute(GO_ON.format(table=table))
        tx.execute("UPDATE identity SET id = ?", (new_id("sto"),))


def _reached(connection: Connection, table: str) -> tuple[Any, ...] | None:
    """The last row that has come in, of those that never change."""
    key = GROWING[table]
    names, down = ", ".join(key), ", ".join(f"{name} DESC" for name in key)
    sql = f"SELECT {names} FROM {table} ORDER BY {down} LIMIT 1"  # noqa: S608 - our own names
    found = connection.execute(sql).fetchone()
    return None if found is None else tuple(found)


def _columns(connection: Connection, table: str) -> list[str]:
    found = connection.execute(f"SELECT * FROM {table} LIMIT 0").description  # noqa: S608
    return [str(each[0]) for each in found if each[0] != "rowid"]


def _comparable(table: str) -> Sequence[str]:
    """What rows are sorted by on both sides: the number of a row is each store's own."""
    key = EVERY[table]
    return ("id",) if key == ("rowid",) else key


def _sorted(
    connection: Connection,
    table: str,
    columns: Sequence[str],
    key: Sequence[str],
    after: tuple[Any, ...] | None,
) -> Iterator[tuple[Any, ...]]:
    """A table's rows, some at a time, from behind `after`."""
    wanted, order = ", ".join((*key, *columns)), ", ".join(key)
    while True:
        where = "" if after is None else f"WHERE ({order}) > ({', '.join('?' * len(key))})"
        sql = f"SELECT {wanted} FROM {table} {where} ORDER BY {order} LIMIT {AT_ONCE}"  # noqa: S608
        rows = connection.execute(sql, after or ()).fetchall()
        for row in rows:
            yield tuple(row[len(key) :])
        if len(rows) < AT_ONCE:
            return
        after = tuple(rows[-1][: len(key)])


def _sorted_rows(
    rows: list[tuple[Any, ...]], columns: Sequence[str], key: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    places = [columns.index(name) for name in key]
    # By bytes, as both databases sort text.
    return iter(sorted(rows, key=lambda row: [_sortable(row[place]) for place in places]))


def _sortable(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _digest(rows: Iterator[tuple[Any, ...]]) -> tuple[int, str]:
    digest, count = hashlib.sha256(), 0
    for row in rows:
        digest.update(repr(row).encode())
        count += 1
    return count, digest.hexdigest()


def _insert(table: str, columns: Sequence[str]) -> str:
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608


def _many(tx: Transaction, insert: str, rows: list[tuple[Any, ...]]) -> None:
    tx.connection.executemany(insert, rows)


def _clear(tx: Transaction, table: str) -> None:
    tx.execute(f"DELETE FROM {table}")  # noqa: S608
