"""Appending to a journal, under the fence.

An append is taken whole or not at all. It must name the run's present fence and continue the
journal exactly where it ends, so that neither a worker that lost the run nor one whose earlier
append failed can leave a gap or a second version.

Appends that follow one another in a batch have their fences looked up in one query. Any other
operation in between may raise a fence, so the next append looks again; so does one whose run was
changed by what followed from an append before it (`projections.write_unowned` says so).
"""

from __future__ import annotations

import json

from holdfast.errors import LeaseLost, StoreError
from holdfast.store.base import Append
from holdfast.store.sqlite import projections
from holdfast.store.sqlite.database import Transaction

FENCE = """
SELECT fence, (SELECT max(seq) FROM events WHERE run_id = runs.id) FROM runs WHERE id = ?
"""
FENCES = """
SELECT id, fence, (SELECT max(seq) FROM events WHERE run_id = runs.id) FROM runs
WHERE id IN (SELECT value FROM json_each(?))
"""


class Appending:
    """The operation of an append."""

    __slots__ = ("append",)

    def __init__(self, append: Append) -> None:
        self.append = append

    def __call__(self, tx: Transaction) -> None:
        append(tx, self.append)


def append(tx: Transaction, append: Append) -> None:
    """Add events to a journal, and everything that follows from them."""
    run_id, events = append.run_id, append.events
    if tx.place >= tx.fences_until:
        _look_up(tx)
    found = tx.fences.get(run_id) or tx.execute(FENCE, (run_id,)).fetchone()
    if found is None or found[0] != append.fence:
        raise LeaseLost(f"{run_id} belongs to another worker now (fence {append.fence} is old)")
    last = tx.last_seq.get(run_id, found[1] or 0)
    if events[0].seq != last + 1:
        raise StoreError(f"{run_id}: event {events[0].seq} does not follow event {last}")
    projections.write(tx, events)


def _look_up(tx: Transaction) -> None:
    """Look up the fences of this append and of those that follow it without a break."""
    runs: list[str] = []
    for operation in tx.operations[tx.place :]:
        if not isinstance(operation, Appending):
            break
        runs.append(operation.append.run_id)
    tx.fences_until = tx.place + len(runs)
    tx.fences.clear()
    if len(runs) > 1:
        for run_id, fence, last in tx.execute(FENCES, (json.dumps(runs),)):
            tx.fences[run_id] = fence, last or 0
