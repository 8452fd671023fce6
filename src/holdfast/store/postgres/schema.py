"""The schema of a store in PostgreSQL, made and brought up to date by whoever opens it first.

It is the numbered files in `sql/`, applied in order in one transaction, under a lock that others
who open the store wait for. It only grows, so that old and new programs work side by side; a
program that meets a higher number than its own refuses by name rather than guess.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from holdfast.errors import SchemaTooNew, StoreError
from holdfast.store.postgres import log_order
from holdfast.store.postgres.connection import PostgresConnection
from holdfast.store.postgres.url import PostgresUrl

LOCKS = 0x686F6C64
"""Advisory locks of ours are `(LOCKS, hash)`, of the schema's name and what they are for."""
TEXT = re.compile(r"(?<= )text(?=[ ,\n])")
OLDEST_SERVER = 13_00_00
"""Has `pg_current_xact_id`."""


@cache
def migrations() -> list[tuple[int, str]]:
    """Number and SQL of each migration, in order."""
    files = sorted((Path(__file__).parent / "sql").glob("*.sql"))
    return [
        (int(file.name[:4]), TEXT.sub('text COLLATE "C"', file.read_text(encoding="utf-8")))
        for file in files
    ]


def settings(url: PostgresUrl) -> str:
    """What a transaction begins with: poolers hand one connection to many."""
    return f"SET LOCAL search_path = {url.schema}"


def locked(url: PostgresUrl, *, what: str = "", shared: bool = False) -> str:
    """Be the only one who writes, or one of those who may at the same time."""
    kind = "_shared" if shared else ""
    return f"SELECT pg_advisory_xact_lock{kind}({LOCKS}, hashtext('{url.schema}{what}'))"


def version(connection: PostgresConnection, url: PostgresUrl) -> int | None:
    """The number of the schema that is there; None: there is none."""
    found = connection.execute("SELECT to_regclass(?)", (f"{url.schema}.schema_version",))
    if (found.fetchone() or (None,))[0] is None:
        return None
    rows = connection.execute(f"SELECT version FROM {url.schema}.schema_version")  # noqa: S608
    return int((rows.fetchone() or (0,))[0])


def prepare(connection: PostgresConnection, url: PostgresUrl) -> None:
    """Make the store, or bring it up to date."""
    server = connection.raw.info.server_version
    if server < OLDEST_SERVER:
        raise StoreError(
            f"{url.name} is PostgreSQL {server // 10000}: too old for a store",
            hint=f"use PostgreSQL {OLDEST_SERVER // 10000} or newer",
        )
    newest = migrations()[-1][0]
    found = version(connection, url)
    if found != newest or _counts_anew(connection, url):
        _migrate(connection, url, newest)


def _counts_anew(connection: PostgresConnection, url: PostgresUrl) -> bool:
    """Whether the database was restored from a dump, and its transactions begin again."""
    last = f"(SELECT coalesce(max(log), 0) >> {log_order.BITS} FROM {url.schema}.events)"  # noqa: S608
    sql = f"""
    SELECT txid_base + pg_snapshot_xmax(pg_current_snapshot())::text::bigint <= {last}
    FROM {url.schema}.identity
    """  # noqa: S608
    return bool((connection.execute(sql).fetchone() or (False,))[0])


def _migrate(connection: PostgresConnection, url: PostgresUrl, newest: int) -> None:
    connection.script("BEGIN", locked(url, what=" migration"), locked(url))
    try:
        found = version(connection, url) or 0
        if found > newest:
            raise SchemaTooNew(
                f"{url.name} has schema {found}; this program knows up to {newest}",
                hint="it was written by a newer Holdfast: upgrade this one",
            )
        if found == 0:
            connection.script(
                f"CREATE SCHEMA IF NOT EXISTS {url.schema}",
                f"CREATE TABLE {url.schema}.schema_version (version bigint NOT NULL)",
                f"INSERT INTO {url.schema}.schema_version VALUES (0)",  # noqa: S608
            )
        connection.script(settings(url))
        for number, sql in migrations():
            if number > found:
                connection.script(sql)
                connection.execute("UPDATE schema_version SET version = ?", (number,))
        connection.execute(log_order.REBASE)
        connection.script("COMMIT")
    except BaseException:
        if not connection.broken:
            connection.script("ROLLBACK")
        raise
