"""Schedules in SQLite: see the contract in `store/schedules.py`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from holdfast.records.schedules import Firing, FiringOutcome, Schedule
from holdfast.store.connection import Connection
from holdfast.store.schedules import KEPT_FIRINGS, ScheduleChange
from holdfast.store.sqlite import creation, projections, queries
from holdfast.store.sqlite.database import Transaction

COLUMNS = """
SELECT name, workflow, timing, input, created_at, overlap, catch_up, jitter, attributes, in_code,
  paused_at, next_at, due_at, last_at, last_run, queued, revision
FROM schedules
"""
INSERT = """
INSERT INTO schedules (workflow, timing, input, created_at, overlap, catch_up, jitter, attributes,
  in_code, paused_at, next_at, due_at, last_at, last_run, queued, revision, name)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?)
ON CONFLICT (name) DO NOTHING
"""
UPDATE = """
UPDATE schedules SET workflow = ?, timing = ?, input = ?, created_at = ?, overlap = ?,
  catch_up = ?, jitter = ?, attributes = ?, in_code = ?, paused_at = ?, next_at = ?, due_at = ?,
  last_at = ?, last_run = ?, queued = ?, revision = revision + 1
WHERE name = ? AND revision = ?
"""
NOTE = """
INSERT INTO firings (schedule, at, outcome, noted_at, run_id, until, error)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (schedule, at) DO UPDATE SET outcome = excluded.outcome,
  noted_at = excluded.noted_at, run_id = excluded.run_id, until = excluded.until,
  error = excluded.error
"""
QUEUED = "SELECT count(*) FROM firings WHERE schedule = ? AND outcome = 'queued'"
SETTLE = "UPDATE schedules SET queued = ?, last_run = ? WHERE name = ?"
PRUNE = """
DELETE FROM firings WHERE schedule = ? AND outcome <> 'queued' AND at < (
  SELECT at FROM firings WHERE schedule = ? AND outcome <> 'queued'
  ORDER BY at DESC LIMIT 1 OFFSET ?)
"""
DUE = "WHERE workflow = ? AND due_at <= ? ORDER BY due_at LIMIT ?"
WITH_QUEUE = "WHERE workflow = ? AND queued > 0 AND paused_at IS NULL LIMIT ?"
NEXT = "SELECT min(due_at) FROM schedules WHERE workflow = ? AND due_at IS NOT NULL"
FIRINGS = """
SELECT schedule, at, outcome, noted_at, run_id, until, error FROM firings WHERE schedule = ?
"""


def write(tx: Transaction, change: ScheduleChange) -> Schedule | None:
    """Write a schedule and do what its firings do, or nothing if it has changed meanwhile."""
    new = change.schedule
    values = (
        new.workflow,
        new.timing,
        new.input,
        new.created_at,
        new.overlap,
        new.catch_up,
        new.jitter,
        json.dumps(new.attributes),
        new.in_code,
        new.paused_at,
        new.next_at,
        new.due_at,
        new.last_at,
        new.last_run,
        new.queued,
        new.name,
    )
    if change.seen is None:
        written = tx.execute(INSERT, values).rowcount
    else:
        written = tx.execute(UPDATE, (*values, change.seen)).rowcount
    if written != 1:
        return None
    if change.cancel is not None:
        run = queries.get(tx.connection, change.cancel)
        if run is not None and not run.ended:
            projections.cancel(tx, run, change.at)
    ids: dict[str | None, str | None] = {}
    for run in change.runs:
        ids[run.id] = creation.existing(tx, run)
        if ids[run.id] is None:
            creation.create(tx, run)
    for each in change.firings:
        run_id = ids.get(each.run_id) or each.run_id
        row = (new.name, each.at, each.outcome, each.noted_at, run_id, each.until, each.error)
        tx.execute(NOTE, row)
    if change.firings:
        [(queued,)] = tx.execute(QUEUED, (new.name,)).fetchall()
        tx.execute(SETTLE, (queued, ids.get(new.last_run) or new.last_run, new.name))
        tx.execute(PRUNE, (new.name, new.name, KEPT_FIRINGS))
    return schedules(tx.connection, [new.name])[0]


def delete(tx: Transaction, name: str) -> bool:
    tx.execute("DELETE FROM firings WHERE schedule = ?", (name,))
    return tx.execute("DELETE FROM schedules WHERE name = ?", (name,)).rowcount == 1


def schedules(connection: Connection, names: Sequence[str] | None) -> list[Schedule]:
    if names is None:
        return [_schedule(row) for row in connection.execute(f"{COLUMNS}ORDER BY name")]
    marks = queries.marks(names)
    sql = f"{COLUMNS}WHERE name IN ({marks}) ORDER BY name"
    return [_schedule(row) for row in connection.execute(sql, tuple(names))]


def due(
    connection: Connection, workflows: Sequence[str], before: float, limit: int
) -> list[Schedule]:
    found: dict[str, Schedule] = {}
    for workflow in workflows:
        rows = connection.execute(COLUMNS + DUE, (workflow, before, limit)).fetchall()
        rows += connection.execute(COLUMNS + WITH_QUEUE, (workflow, limit)).fetchall()
        found.update((str(row[0]), _schedule(row)) for row in rows)
    urgent = sorted(found.values(), key=lambda each: (each.due_at is None, each.due_at or 0.0))
    return urgent[:limit]


def next_due(connection: Connection, workflows: Sequence[str]) -> float | None:
    rows = [connection.execute(NEXT, (name,)).fetchone()[0] for name in workflows]
    return min((due_at for due_at in rows if due_at is not None), default=None)


def used_keys(connection: Connection, workflow: str, keys: Sequence[str]) -> set[str]:
    sql = f"SELECT key FROM runs WHERE workflow = ? AND key IN ({queries.marks(keys)})"  # noqa: S608
    return {str(row[0]) for row in connection.execute(sql, (workflow, *keys))}


def firings(
    connection: Connection, name: str, limit: int, outcome: FiringOutcome | None
) -> list[Firing]:
    if outcome is None:
        rows = connection.execute(f"{FIRINGS} ORDER BY at DESC LIMIT ?", (name, limit))
    else:
        order = "" if outcome == "queued" else "DESC"
        sql = f"{FIRINGS} AND outcome = ? ORDER BY at {order} LIMIT ?"
        rows = connection.execute(sql, (name, outcome, limit))
    return [Firing(*row) for row in rows]


def _schedule(row: tuple[Any, ...]) -> Schedule:
    values = list(row)
    values[8], values[9] = json.loads(row[8]), bool(row[9])
    return Schedule(*values)
