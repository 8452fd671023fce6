"""Concurrency limits: how many runs of a workflow, and of a lane in it, may be under way.

Under way means admitted and not ended: a run that sleeps, or was paused on its way, keeps its
place. Nothing begins without a place: whichever way a run comes (made, delayed, resumed, retried,
forked), `admit` is asked before it is handed to a worker. One that is due and finds no place is
`queued`; the end of another admits the oldest that fits. A run that is not due yet, or was paused
before it had a place, holds none.
"""

from __future__ import annotations

from holdfast.records import Status
from holdfast.store.sqlite.database import Transaction

UNDER_WAY = """
SELECT count(*) FROM runs WHERE workflow = ? AND (run_limit IS NOT NULL OR lane_limit IS NOT NULL)
  AND admitted = 1 AND finished_at IS NULL
"""
UNDER_WAY_IN_LANE = UNDER_WAY + " AND lane = ?"
# From lane to lane by index, for there may be thousands of runs in each. The last lane that is
# found is NULL: that of the runs without one.
FIRST_OF_LANES = """
WITH RECURSIVE
  flow (name) AS (VALUES (?)),
  lanes (lane) AS (
    SELECT (SELECT min(lane) FROM runs
            WHERE workflow = (SELECT name FROM flow) AND status = 'queued')
    UNION ALL
    SELECT (SELECT min(lane) FROM runs
            WHERE workflow = (SELECT name FROM flow) AND status = 'queued' AND lane > lanes.lane)
    FROM lanes WHERE lanes.lane IS NOT NULL
  )
SELECT r.id, r.run_limit, r.lane, r.lane_limit FROM lanes, runs r
WHERE r.rowid = (SELECT min(rowid) FROM runs WHERE workflow = (SELECT name FROM flow)
                 AND status = 'queued' AND lane IS lanes.lane)
ORDER BY r.rowid
"""
LIMITS = "SELECT admitted, workflow, run_limit, lane, lane_limit FROM runs WHERE id = ?"
ENTER = """
UPDATE runs SET status = ?, admitted = ?, due_at = ?, owner = NULL, error = NULL,
  finished_at = NULL, crashes = 0
WHERE id = ?
"""
ADMIT = """
UPDATE runs SET status = 'pending', admitted = 1, due_at = max(coalesce(due_at, ?), ?)
WHERE id = ?
"""


def has_room(
    tx: Transaction, workflow: str, run_limit: int | None, lane: str | None, lane_limit: int | None
) -> bool:
    """Whether one more run may be admitted."""
    if run_limit is not None and _count(tx, UNDER_WAY, (workflow,)) >= run_limit:
        return False
    if lane is None or lane_limit is None:
        return True
    return _count(tx, UNDER_WAY_IN_LANE, (workflow, lane)) < lane_limit


def _count(tx: Transaction, sql: str, parameters: tuple[str, ...]) -> int:
    return int(tx.execute(sql, parameters).fetchone()[0])


def place_for(
    tx: Transaction,
    workflow: str,
    run_limit: int | None,
    lane: str | None,
    lane_limit: int | None,
    *,
    due: bool,
) -> tuple[Status, bool]:
    """How a run that has not begun comes in: its status, and whether it has a place."""
    if run_limit is None and lane_limit is None:
        return "pending", True
    if not due:
        return "pending", False
    admitted = has_room(tx, workflow, run_limit, lane, lane_limit)
    return ("pending" if admitted else "queued"), admitted


def enter(tx: Transaction, run_id: str, due_at: float, now: float) -> None:
    """Let a run come in (again) that has not begun: as a new one would, due at its moment."""
    admitted, *limits = tx.execute(LIMITS, (run_id,)).fetchone()
    due_at = max(due_at, now)
    status, has_place = "pending", bool(admitted)
    if not has_place:
        status, has_place = place_for(tx, *limits, due=due_at <= now)
    tx.execute(ENTER, (status, has_place, due_at, run_id))
    tx.due = True


def admit(tx: Transaction, run_id: str) -> bool:
    """Whether a run that is due may begin; if there is no place for it, it is queued."""
    admitted, *limits = tx.execute(LIMITS, (run_id,)).fetchone()
    if admitted:
        return True
    if has_room(tx, *limits):
        tx.execute("UPDATE runs SET admitted = 1 WHERE id = ?", (run_id,))
        return True
    tx.execute("UPDATE runs SET status = 'queued' WHERE id = ?", (run_id,))
    return False


def admit_next(tx: Transaction, ended: str, at: float) -> None:
    """A run has ended: let queued ones of its workflow in, oldest first, as far as they fit."""
    _, workflow, run_limit, _, lane_limit = tx.execute(LIMITS, (ended,)).fetchone()
    if run_limit is None and lane_limit is None:
        return
    for run_id, *limits in tx.execute(FIRST_OF_LANES, (workflow,)).fetchall():
        if has_room(tx, workflow, *limits):
            tx.execute(ADMIT, (at, at, run_id))
            tx.due = True
