"""Starts that are gathered in one run, as long as it has not begun: debounce and batches.

Such a run is there from the first start on, and due later. Those that come meanwhile find it by its
key and change its input, the first event of its journal, which nobody has acted on yet. Once a
worker has it, or it is queued behind others, it is closed, and the next start opens another.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from holdfast.records import Event
from holdfast.records.flow import QueuePlace
from holdfast.store.base import NewRun
from holdfast.store.connection import Connection
from holdfast.store.sqlite import admission, events
from holdfast.store.sqlite.database import Transaction

OPEN = """
SELECT id, created_at, due_at FROM runs
WHERE workflow = ? AND gather = ? AND status = 'pending' AND owner IS NULL AND begun_at IS NULL
ORDER BY rowid DESC LIMIT 1
"""
CHANGE = """
UPDATE events SET meta = ?, value = ?, blob = ?, hash = ? WHERE run_id = ? AND seq = 1
"""
DUE = "UPDATE runs SET due_at = ?, gather = ? WHERE id = ?"
FORGET = "DELETE FROM blobs WHERE run_id = ?"
FIRST = "SELECT meta FROM events WHERE run_id = ? AND seq = 1"


def into_open(tx: Transaction, new: NewRun, now: float) -> str | None:
    """Put a start into the run that gathers them, if there is one: its id."""
    gather = new.gather
    assert gather is not None
    found = tx.execute(OPEN, (new.workflow, gather.key)).fetchone()
    if found is None:
        return None
    run_id, created_at, due_at = str(found[0]), float(found[1]), float(found[2])
    tx.flush()
    [first] = events.read(tx.connection, events.OF_RUN, (run_id, 0, 1))
    facts = first.facts
    key: str | None = gather.key
    facts["gathered"] = facts.get("gathered", 1) + 1
    if gather.kind == "last":
        value = new.input
        due_at = now + gather.wait
        if gather.at_most is not None:
            due_at = min(due_at, created_at + gather.at_most)
    else:
        if new.id in facts.setdefault("starts", []):
            return run_id  # asked again for the very same
        facts["starts"].append(new.id)
        value, count = _joined(first.value or b"{}", new.input, gather.field)
        if gather.size is not None and count >= gather.size:
            due_at, key = min(due_at, now), None
    _change(tx, first, facts, value)
    tx.execute(DUE, (due_at, key, run_id))
    tx.due = True
    return run_id


def _joined(one: bytes, other: bytes, field: str) -> tuple[bytes, int]:
    """Two inputs as one: the lists under a field, one behind the other."""
    first, second = json.loads(one), json.loads(other)
    items: list[Any] = [*first[field], *second[field]]
    return json.dumps({**first, field: items}, separators=(",", ":")).encode(), len(items)


def _change(tx: Transaction, first: Event, facts: dict[str, Any], value: bytes) -> None:
    changed = first._replace(meta=json.dumps(facts), value=value)
    tx.execute(FORGET, (first.run_id,))
    *_, meta, inline, blob, digest = events.row(tx, changed)
    tx.execute(CHANGE, (meta, inline, blob, digest, first.run_id))


def queue_place(connection: Connection, run_id: str) -> QueuePlace | None:
    """Why a run has not begun, if it is its flow control that holds it."""
    place = admission.queue_place(connection, run_id)
    if place is None or place.why != "gathering":
        return place
    (meta,) = connection.execute(FIRST, (run_id,)).fetchone()
    return replace(place, gathered=json.loads(meta).get("gathered", 1))
