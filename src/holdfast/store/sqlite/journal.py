"""Appending to a journal, under the fence.

An append is taken whole or not at all. It must name the run's present fence and continue the
journal exactly where it ends, so that neither a worker that lost the run nor one whose earlier
append failed can leave a gap or a second version.
"""

from __future__ import annotations

from holdfast.errors import LeaseLost, StoreError
from holdfast.store.base import Append
from holdfast.store.sqlite import projections
from holdfast.store.sqlite.database import Transaction

CHECK_FENCE = """
SELECT (SELECT max(seq) FROM events WHERE run_id = runs.id) FROM runs WHERE id = ? AND fence = ?
"""


def append(tx: Transaction, append: Append) -> None:
    """Add events to a journal, and everything that follows from them."""
    run_id, fence, events = append.run_id, append.fence, append.events
    found = tx.execute(CHECK_FENCE, (run_id, fence)).fetchone()
    if found is None:
        raise LeaseLost(f"{run_id} belongs to another worker now (fence {fence} is old)")
    last = tx.last_seq.get(run_id, found[0] or 0)
    if events[0].seq != last + 1:
        raise StoreError(f"{run_id}: event {events[0].seq} does not follow event {last}")
    projections.write(tx, events)
