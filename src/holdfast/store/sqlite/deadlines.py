"""Deadlines: a run that has not ended by its own is ended, wherever it stands.

The owner of a run watches its deadline itself. One that nobody owns is due at its deadline, or is
found by it (queued, paused); then it is handed out for its end alone. A body that has begun is
cancelled where it stopped, with an event that says why, so that its `finally` blocks run and
nothing else begins. A run that has not begun is failed by the worker that is given it. A stuck run
is left as it is: there is no code that could end it, and somebody has to look at it anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.connection import Connection
from holdfast.store.sqlite import projections, queries
from holdfast.store.sqlite.database import Transaction

OVERDUE = """
SELECT id FROM runs
WHERE workflow = ? AND deadline <= ? AND deadline IS NOT NULL
  AND owner IS NULL AND status IN ('queued', 'paused')
ORDER BY deadline LIMIT ?
"""
NEXT = """
SELECT deadline FROM runs
WHERE workflow = ? AND deadline IS NOT NULL AND owner IS NULL AND status IN ('queued', 'paused')
ORDER BY deadline LIMIT 1
"""
PASSED = "SELECT begun_at IS NOT NULL FROM runs WHERE id = ? AND deadline <= ?"
# Not `waiting`, for it has not begun: the end of its deadline is all that is still to come.
HAND_OUT = "UPDATE runs SET status = 'pending', due_at = ? WHERE id = ?"
RENEW = """
UPDATE runs SET deadline = ? + timeout WHERE id = ? AND timeout IS NOT NULL RETURNING deadline
"""


def wake_overdue(tx: Transaction, workflows: Sequence[str], limit: int, now: float) -> None:
    """Let runs be claimed that are queued or paused, and whose deadline has passed."""
    for workflow in workflows:
        for (run_id,) in tx.execute(OVERDUE, (workflow, now, limit)).fetchall():
            if not _cancel_if_begun(tx, str(run_id), now):
                tx.execute(HAND_OUT, (now, run_id))


def enforce(tx: Transaction, run_id: str, now: float) -> bool:
    """Whether the deadline of a run that is handed out has passed; its body is told if it has."""
    passed = tx.execute(PASSED, (run_id, now)).fetchone()
    if passed is None:
        return False
    _cancel_if_begun(tx, run_id, now)
    return True


def _cancel_if_begun(tx: Transaction, run_id: str, now: float) -> bool:
    (begun,) = tx.execute(PASSED, (run_id, now)).fetchone()
    if begun:
        run = queries.get(tx.connection, run_id)
        assert run is not None, run_id
        projections.cancel(tx, run, now, {"deadline": run.deadline})
    return bool(begun)


def of_parked(connection: Connection, workflows: Sequence[str]) -> list[float]:
    """The next deadline of the queued and paused runs of each workflow."""
    found = [connection.execute(NEXT, (name,)).fetchone() for name in workflows]
    return [row[0] for row in found if row is not None]


def renew(tx: Transaction, run_id: str, now: float) -> float | None:
    """Give a run its time anew; returns its deadline, if it has one."""
    found = tx.execute(RENEW, (now, run_id)).fetchone()
    return None if found is None else float(found[0])
