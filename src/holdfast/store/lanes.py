"""Concurrency limits: how many runs of a workflow, and of a lane in it, may be under way.

Under way means admitted and not ended: a run that sleeps or is paused keeps its place. A run
over the limit is `queued`; the end of another admits the oldest one that fits.
"""

from __future__ import annotations

from holdfast.store.writer import Transaction

UNDER_WAY = """
SELECT count(*) FROM runs WHERE workflow = ? AND (run_limit IS NOT NULL OR lane_limit IS NOT NULL)
  AND status IN ('pending', 'running', 'waiting', 'paused', 'stuck')
"""
UNDER_WAY_IN_LANE = UNDER_WAY + " AND lane = ?"
FIRST_OF_LANES = """
SELECT min(id), lane, run_limit, lane_limit FROM runs
WHERE workflow = ? AND status = 'queued' GROUP BY lane ORDER BY min(id)
"""
LIMITS = "SELECT workflow, run_limit, lane_limit FROM runs WHERE id = ?"


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


def admit_next(tx: Transaction, ended: str, at: float) -> None:
    """A run has ended: let queued ones of its workflow in, oldest first, as far as they fit."""
    workflow, run_limit, lane_limit = tx.execute(LIMITS, (ended,)).fetchone()
    if run_limit is None and lane_limit is None:
        return
    for run_id, lane, limit, of_lane in tx.execute(FIRST_OF_LANES, (workflow,)).fetchall():
        if has_room(tx, workflow, limit, lane, of_lane):
            tx.execute("UPDATE runs SET status = 'pending', due_at = ? WHERE id = ?", (at, run_id))
            tx.due = True
