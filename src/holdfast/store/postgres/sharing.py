"""Which batches may be written while others are, and what they lock to be safe.

Three advisory locks of a store keep apart what concerns runs, model calls and sandboxes. What
follows is what workers do all day, and concerns their own runs alone: appending, ending and
creating runs without limits, waiting and being told, giving runs back, claiming. Such a batch
shares the lock of the runs with others of its kind, and locks the rows of the runs it concerns, in
the order of their ids, before it looks at a fence. Everything else (an event for whoever waits for
it, steering, limits, burying a worker) has that lock to itself, and meets none of these.

So a wait can't open while its event is sent, and a run that ends finds who waits for it: who
waits was there before it began, or is locked with it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.records import (
    ATTRIBUTES_SET,
    CANCEL_REQUESTED,
    CHILD_ENDED,
    CHILD_STARTED,
    RUN_CANCELLED,
    RUN_COMPLETED,
    RUN_FAILED,
    STEP_PUBLISHED,
    STREAM_WRITTEN,
    VALUE_PUBLISHED,
    WAIT_CREATED,
    WAIT_RECEIVED,
    WAIT_TIMED_OUT,
    WEBHOOK_CREATED,
    Event,
)
from holdfast.store.base import END_OF, NewRun
from holdfast.store.postgres.claims import Claiming
from holdfast.store.postgres.transaction import NotShared
from holdfast.store.sqlite.database import Apart, Operation, Own, Transaction
from holdfast.store.sqlite.journal import Appending
from holdfast.store.sqlite.leases import Creating
from holdfast.store.sqlite.projections import BY_TYPE, LEFT_OF_MANY

OWN = frozenset({
    ATTRIBUTES_SET, STREAM_WRITTEN, VALUE_PUBLISHED, STEP_PUBLISHED, WEBHOOK_CREATED,
    CANCEL_REQUESTED, WAIT_RECEIVED, WAIT_TIMED_OUT, CHILD_ENDED,
})  # fmt: skip
"""Events of which follows something for their own run only."""
ENDS = frozenset({RUN_COMPLETED, RUN_FAILED, RUN_CANCELLED})
CONCERN_OTHERS = ('"handler"', '"at_once"')
"""Facts of an end by which other runs are started or cancelled."""

LOCK = """
SELECT id FROM runs WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id FOR NO KEY UPDATE
"""
KNOWN = "SELECT id FROM runs WHERE id IN (SELECT value FROM json_each(?))"
OF_MAIL = """
SELECT DISTINCT run_id FROM inbox
WHERE id IN (SELECT CAST(value AS bigint) FROM json_array_elements_text(?::json) AS value)
"""
WAITING = "SELECT DISTINCT run_id FROM waits WHERE name IN (SELECT value FROM json_each(?))"


@dataclass(slots=True)
class Plan:
    """What a batch concerns that may be written while others are."""

    runs: bool = False
    """Whether it concerns runs at all."""
    apart: set[str] = field(default_factory=set[str])
    """What else it has to itself: model calls, sandboxes."""
    appended: set[str] = field(default_factory=set[str])
    """Runs to lock."""
    ended: set[str] = field(default_factory=set[str])
    created: set[str] = field(default_factory=set[str])
    children: set[str] = field(default_factory=set[str])
    """Those of them that their parent waits for."""
    mail: set[int] = field(default_factory=set[int])

    def add(self, operation: Operation) -> bool:
        """Whether an operation may be part of such a batch."""
        if isinstance(operation, Apart):
            self.apart.add(operation.what)
            return True
        self.runs = True
        if isinstance(operation, Appending):
            self.appended.add(operation.append.run_id)
            return all(map(self._add_event, operation.append.events))
        if isinstance(operation, Creating):
            new = operation.new
            return not _shapes_others(new) and self._add_new(new.id, new.run_limit, new.lane_limit)
        if isinstance(operation, Claiming):
            return not operation.lost
        if isinstance(operation, Own):
            self.appended.update(operation.runs)
            self.mail.update(operation.mail)
            return True
        return False

    def _add_new(self, run_id: str, *limits: int | None) -> bool:
        if any(limit is not None for limit in limits) or run_id in self.created:
            return False
        self.created.add(run_id)
        return True

    def _add_event(self, event: Event) -> bool:
        if event.type in ENDS:
            self.ended.add(event.run_id)
            return not any(fact in event.meta for fact in CONCERN_OTHERS)
        if event.type == WAIT_CREATED:
            return not event.facts["name"].startswith(END_OF)
        if event.type == CHILD_STARTED:
            new = event.facts["run"]
            self.children.add(new["id"])
            return "pace" not in new and self._add_new(
                new["id"], new.get("run_limit"), new.get("lane_limit")
            )
        return event.type not in BY_TYPE or event.type in OWN


def _shapes_others(new: NewRun) -> bool:
    """Whether others have to be counted, changed or cancelled for a run to be created."""
    kept = new.pace, new.gather, new.start_rates or None
    return new.key_policy == "replace" or any(each is not None for each in kept)


def plan(operations: Sequence[Operation]) -> Plan | None:
    """What has to be locked and looked up for a batch; None if it has to be written alone."""
    found = Plan()
    return found if all(map(found.add, operations)) else None


def look_up(tx: Transaction, plan: Plan) -> None:
    """Lock the runs, and find out what their operations ask about; for all of them at once."""
    locked = set(plan.appended)
    if plan.mail:
        locked |= _first_of(tx, OF_MAIL, plan.mail)
    if plan.ended:
        locked |= _first_of(tx, WAITING, {END_OF + run_id for run_id in plan.ended})
    if locked:
        tx.execute(LOCK, (json.dumps(sorted(locked)),))
    if plan.ended:
        for run_id, *left in tx.execute(LEFT_OF_MANY, (json.dumps(sorted(plan.ended)),)):
            asked, _awaited, limited = left[-3:]
            if asked or limited:
                raise NotShared(run_id)
            tx.left[run_id] = tuple(left)
    if plan.created:
        known = _first_of(tx, KNOWN, plan.created)
        if known & plan.children:
            raise NotShared("a child that is there may end while its parent begins to wait")
        tx.absent |= plan.created - known


def _first_of(tx: Transaction, sql: str, values: set[Any]) -> set[str]:
    return {str(row[0]) for row in tx.execute(sql, (json.dumps(sorted(values)),))}
