"""Who works on the store, what waits for somebody, and how large it all is."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from holdfast.records import Worker
from holdfast.store.connection import Connection
from holdfast.store.inspection import COUNTED, Due, StoreState, Tenancy
from holdfast.store.sqlite import queries, wake
from holdfast.store.sqlite.queries import last_log
from holdfast.store.sqlite.run_views import counts

HELD = "SELECT id FROM runs WHERE owner = ? ORDER BY id DESC LIMIT ?"
DUE = """
SELECT count(*), min(due_at) FROM (SELECT due_at FROM runs
WHERE workflow = ? AND due_at <= ? AND owner IS NULL AND status IN ('pending', 'waiting')
ORDER BY due_at LIMIT ?) AS found
"""
NEXT = """
SELECT due_at FROM runs
WHERE workflow = ? AND due_at > ? AND owner IS NULL AND status IN ('pending', 'waiting')
ORDER BY due_at LIMIT 1
"""


def state(connection: Connection, path: Path, now: float) -> StoreState:
    """Everything the page on workers shows."""
    pages, free, size = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return StoreState(
        *at_work(connection, now),
        int(connection.execute("PRAGMA user_version").fetchone()[0]),
        pages * size,
        free * size,
        f"SQLite {sqlite3.sqlite_version}",
        _files(path),
        frozenset(wake.alive(path)),
    )


def at_work(
    connection: Connection, now: float, shown: int = 10
) -> tuple[list[Tenancy], list[Due], dict[str, dict[str, int]], int]:
    """Who has which runs, what is due, how many runs there are, and where the log ends."""
    kept = counts(connection)
    return (
        [_tenancy(connection, worker, shown) for worker in queries.workers(connection)],
        [_due(connection, workflow, now) for workflow in sorted(kept)],
        kept,
        last_log(connection),
    )


def _tenancy(connection: Connection, worker: Worker, shown: int) -> Tenancy:
    ids = [row[0] for row in connection.execute(HELD, (worker.id, shown))]
    runs = [queries.get(connection, id) for id in ids]
    return Tenancy(worker, [run for run in runs if run is not None])


def _due(connection: Connection, workflow: str, now: float) -> Due:
    number, since = connection.execute(DUE, (workflow, now, COUNTED)).fetchone()
    next_at = connection.execute(NEXT, (workflow, now)).fetchone()
    return Due(workflow, number, since, next_at and next_at[0])


def _files(path: Path) -> list[tuple[str, int]]:
    """The store's files and their sizes."""
    found = (path, path.with_name(f"{path.name}-wal"))
    return [(file.name, file.stat().st_size) for file in found if file.exists()]
