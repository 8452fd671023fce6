"""Who works on the store, what waits for somebody, and how large it all is."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from holdfast.records import Run, Worker
from holdfast.store.sqlite import queries
from holdfast.store.sqlite.inspection import last_log
from holdfast.store.sqlite.run_views import counts

HELD = "SELECT id FROM runs WHERE owner = ? ORDER BY id DESC LIMIT ?"
DUE = """
SELECT count(*), min(due_at) FROM (SELECT due_at FROM runs
WHERE workflow = ? AND due_at <= ? AND owner IS NULL AND status IN ('pending', 'waiting')
ORDER BY due_at LIMIT ?)
"""
NEXT = """
SELECT due_at FROM runs
WHERE workflow = ? AND due_at > ? AND owner IS NULL AND status IN ('pending', 'waiting')
ORDER BY due_at LIMIT 1
"""
COUNTED = 1000


@dataclass(frozen=True)
class Due:
    """Runs of a workflow that could go on, and nobody has taken."""

    workflow: str
    runs: int
    """Up to COUNTED."""
    since: float | None
    """Since when the first of them is due."""
    next_at: float | None
    """When the next one will be."""


@dataclass(frozen=True)
class Tenancy:
    """A worker, and some of the runs it has in hand."""

    worker: Worker
    runs: list[Run]


@dataclass(frozen=True)
class State:
    """The store as a whole."""

    workers: list[Tenancy]
    due: list[Due]
    counts: dict[str, dict[str, int]]
    log: int
    schema: int
    page_bytes: int
    """What the file holds, free pages included."""
    free_bytes: int


def state(connection: sqlite3.Connection, now: float, shown: int = 10) -> State:
    """Everything the page on workers shows."""
    kept = counts(connection)
    pages, free, size = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return State(
        [_tenancy(connection, worker, shown) for worker in queries.workers(connection)],
        [_due(connection, workflow, now) for workflow in sorted(kept)],
        kept,
        last_log(connection),
        int(connection.execute("PRAGMA user_version").fetchone()[0]),
        pages * size,
        free * size,
    )


def _tenancy(connection: sqlite3.Connection, worker: Worker, shown: int) -> Tenancy:
    ids = [row[0] for row in connection.execute(HELD, (worker.id, shown))]
    runs = [queries.get(connection, id) for id in ids]
    return Tenancy(worker, [run for run in runs if run is not None])


def _due(connection: sqlite3.Connection, workflow: str, now: float) -> Due:
    number, since = connection.execute(DUE, (workflow, now, COUNTED)).fetchone()
    next_at = connection.execute(NEXT, (workflow, now)).fetchone()
    return Due(workflow, number, since, next_at and next_at[0])
