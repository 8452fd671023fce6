"""Holds, and the runs whose time is over, in SQLite: see the contract in `store/retention.py`."""

from __future__ import annotations

from holdfast.errors import NotFound
from holdfast.store.connection import Connection
from holdfast.store.retention import Hold, Kept
from holdfast.store.sqlite import queries
from holdfast.store.sqlite.database import Transaction

PUT = """
INSERT INTO holds (run_id, reason, held_by, at) VALUES (?, ?, ?, ?)
ON CONFLICT (run_id) DO UPDATE SET reason = excluded.reason, held_by = excluded.held_by,
  at = excluded.at
"""
# One after the other: a workflow's runs may be many, and its names are few.
NEXT_WORKFLOW = "SELECT min(workflow) FROM runs WHERE workflow > ?"
NEWEST = """
SELECT id FROM runs WHERE workflow = ? AND finished_at IS NOT NULL ORDER BY id DESC
LIMIT 1 OFFSET ?
"""


def hold(tx: Transaction, new: Hold) -> None:
    if tx.execute("SELECT 1 FROM runs WHERE id = ?", (new.run_id,)).fetchone() is None:
        raise NotFound(f"there is no run {new.run_id}")
    tx.execute(PUT, (new.run_id, new.reason, new.by, new.at))


def release(tx: Transaction, run_id: str) -> bool:
    return tx.execute("DELETE FROM holds WHERE run_id = ?", (run_id,)).rowcount == 1


def holds(connection: Connection) -> list[Hold]:
    sql = "SELECT run_id, reason, held_by, at FROM holds ORDER BY at DESC, run_id"
    return [Hold(*row) for row in connection.execute(sql)]


def workflows(connection: Connection) -> list[str]:
    found: list[str] = []
    while (row := connection.execute(NEXT_WORKFLOW, (found[-1] if found else "",)).fetchone())[0]:
        found.append(str(row[0]))
    return found


def over(connection: Connection, kept: Kept, limit: int, after: str) -> list[str]:
    conditions: list[str] = []
    values: list[object] = [kept.workflow, after, *kept.status]
    if kept.finished_after is not None:
        conditions.append("r.finished_at < ?")
        values.append(kept.finished_after)
    if kept.newest is not None:
        last = connection.execute(NEWEST, (kept.workflow, kept.newest)).fetchone()
        if last is not None:
            conditions.append("r.id <= ?")
            values.append(last[0])
    if not conditions:
        return []
    sql = f"""
    SELECT r.id FROM runs r
    WHERE r.workflow = ? AND r.id > ? AND r.status IN ({queries.marks(kept.status)})
      AND r.finished_at IS NOT NULL AND ({" OR ".join(conditions)})
      AND NOT EXISTS (SELECT 1 FROM holds WHERE run_id = r.id)
      AND NOT EXISTS (SELECT 1 FROM runs p WHERE p.id = r.parent_id AND p.finished_at IS NULL)
    ORDER BY r.id LIMIT ?
    """  # noqa: S608 - conditions of ours
    return [str(row[0]) for row in connection.execute(sql, (*values, limit))]
