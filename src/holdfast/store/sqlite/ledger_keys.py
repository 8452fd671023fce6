"""Virtual keys in the store: only hashes. Runs inside the ledger's transaction."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from holdfast.records.calls import VirtualKey

_COLUMNS = "id, name, hash, created_at, expires_at, revoked_at, models, run_id, tags"


def add(connection: sqlite3.Connection, key: VirtualKey) -> None:
    connection.execute(
        f"INSERT INTO virtual_keys ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        (key.id, key.name, key.hash, key.created_at, key.expires_at, key.revoked_at,
         json.dumps(key.models), key.run_id, json.dumps(key.tags)),
    )  # fmt: skip


def find(connection: sqlite3.Connection, hash: str) -> VirtualKey | None:
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM virtual_keys WHERE hash = ?",  # noqa: S608
        (hash,),
    ).fetchone()
    return None if row is None else _key(row)


def every(connection: sqlite3.Connection) -> list[VirtualKey]:
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM virtual_keys ORDER BY created_at"  # noqa: S608
    ).fetchall()
    return [_key(row) for row in rows]


def revoke(connection: sqlite3.Connection, id: str, at: float) -> bool:
    cursor = connection.execute(
        "UPDATE virtual_keys SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?", (at, id)
    )
    return cursor.rowcount == 1


def _key(row: tuple[Any, ...]) -> VirtualKey:
    return VirtualKey(
        id=row[0], name=row[1], hash=row[2], created_at=row[3], expires_at=row[4],
        revoked_at=row[5], models=tuple(json.loads(row[6])), run_id=row[7],
        tags=tuple(json.loads(row[8])),
    )  # fmt: skip
