"""Which batches may be written while others are: those that concern their own runs alone.

Appending events that change nothing but their run, ending runs that nobody waits for and no limit
counts, and creating runs without limits: this is what a worker does all day. Such a batch shares
the store's lock with others of its kind, and locks the rows of its runs, in the order of their ids,
before it looks at a fence. Everything else has the lock to itself, and meets none of these.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.records import (
    ATTRIBUTES_SET,
    RUN_CANCELLED,
    RUN_COMPLETED,
    RUN_FAILED,
    STEP_PUBLISHED,
    STREAM_WRITTEN,
    VALUE_PUBLISHED,
)
from holdfast.store.sqlite.database import Operation, Transaction
from holdfast.store.sqlite.journal import Appending
from holdfast.store.sqlite.leases import Creating
from holdfast.store.sqlite.projections import BY_TYPE, LEFT_OF_MANY

OWN = frozenset({ATTRIBUTES_SET, STREAM_WRITTEN, VALUE_PUBLISHED, STEP_PUBLISHED})
"""Events of which follows something for their own run only."""
ENDS = frozenset({RUN_COMPLETED, RUN_FAILED, RUN_CANCELLED})
CONCERN_OTHERS = ('"handler"', '"at_once"')
"""Facts of an end by which other runs are started or cancelled."""

LOCK = """
SELECT id FROM runs WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id FOR NO KEY UPDATE
"""
KNOWN = "SELECT id FROM runs WHERE id IN (SELECT value FROM json_each(?))"


class NotShared(Exception):
    """The batch concerns more than its own runs: it has to be written alone."""


@dataclass(slots=True)
class Plan:
    """The runs of a batch that may share the lock."""

    appended: set[str] = field(default_factory=set[str])
    ended: set[str] = field(default_factory=set[str])
    created: set[str] = field(default_factory=set[str])


def plan(operations: Sequence[Operation]) -> Plan | None:
    """What has to be locked and looked up for a batch; None if it has to be written alone."""
    found = Plan()
    for operation in operations:
        if isinstance(operation, Appending):
            append = operation.append
            found.appended.add(append.run_id)
            for event in append.events:
                if event.type in ENDS:
                    if any(fact in event.meta for fact in CONCERN_OTHERS):
                        return None
                    found.ended.add(append.run_id)
                elif event.type in BY_TYPE and event.type not in OWN:
                    return None
        elif isinstance(operation, Creating):
            new = operation.new
            if new.run_limit is not None or new.lane_limit is not None or new.id in found.created:
                return None
            found.created.add(new.id)
        else:
            return None
    return found


def look_up(tx: Transaction, plan: Plan) -> None:
    """Lock the runs, and find out what their operations ask about; for all of them at once."""
    if plan.appended:
        tx.execute(LOCK, (json.dumps(sorted(plan.appended)),))
    if plan.ended:
        for run_id, *left in tx.execute(LEFT_OF_MANY, (json.dumps(sorted(plan.ended)),)):
            asked, awaited, limited = left[-3:]
            if asked or awaited or limited:
                raise NotShared(run_id)
            tx.left[run_id] = tuple(left)
    if plan.created:
        known = tx.execute(KNOWN, (json.dumps(sorted(plan.created)),))
        tx.absent |= plan.created - {str(row[0]) for row in known}
