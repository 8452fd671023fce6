"""What follows from an event: the tables that answer questions, kept in the event's transaction.

One function per event type that changes more than the journal. They trust the event: whether
it may be appended was checked before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.records import (
    ATTRIBUTES_SET,
    CANCEL_REQUESTED,
    CHILD_DROPPED,
    CHILD_ENDED,
    CHILD_STARTED,
    RUN_CANCELLED,
    RUN_COMPLETED,
    RUN_FAILED,
    RUN_PAUSED,
    RUN_STUCK,
    STREAM_WRITTEN,
    WAIT_CREATED,
    WAIT_RECEIVED,
    WAIT_TIMED_OUT,
    WEBHOOK_CREATED,
    Event,
    Run,
)
from holdfast.store import events as rows
from holdfast.store import lanes, mailbox, queries
from holdfast.store.base import NewRun
from holdfast.store.creation import create, existing, set_attributes
from holdfast.store.writer import Transaction

END = """
UPDATE runs SET status = ?, error = ?, finished_at = ?, owner = NULL, due_at = NULL WHERE id = ?
"""
LAST_SEQ = """
SELECT max(claim_seq, coalesce((SELECT max(seq) FROM events WHERE run_id = runs.id), 0))
FROM runs WHERE id = ?
"""
PARK = "UPDATE runs SET status = ?, error = ?, owner = NULL, due_at = NULL WHERE id = ?"


REVIVE = """
UPDATE runs SET status = ?, due_at = ?, owner = NULL, error = NULL, finished_at = NULL, crashes = 0
WHERE id = ?
"""


def write(tx: Transaction, events: Sequence[Event]) -> None:
    """Add events whose place was checked to their journal, and everything that follows."""
    for event in events:
        tx.rows.append(rows.row(tx, event))
        project = BY_TYPE.get(event.type)
        if project is not None:
            project(tx, event)
        tx.last_seq[event.run_id] = event.seq


def write_unowned(
    tx: Transaction, run_id: str, type: str, at: float, facts: dict[str, Any]
) -> None:
    """Add an event to the journal of a run that nobody owns, as if claimed for a moment."""
    last = tx.last_seq.get(run_id) or tx.execute(LAST_SEQ, (run_id,)).fetchone()[0]
    tx.execute("UPDATE runs SET fence = fence + 1 WHERE id = ?", (run_id,))
    write(tx, [Event(run_id, last + 1, type, "", at, json.dumps(facts))])


def cancel(tx: Transaction, run: Run, at: float) -> None:
    """Cancel a run that has not ended; at once if there is nothing to clean up."""
    never_ran = run.status in ("queued", "pending") and run.started_at is None
    if never_ran or run.status == "stuck":
        # Nothing to clean up, or no code that could: there is no body to run `finally` in.
        write_unowned(tx, run.id, RUN_CANCELLED, at, {"requested_at": at})
        return
    if run.status == "paused":
        tx.execute(REVIVE, ("waiting", at, run.id))
    mailbox.request(tx, run.id, "cancel", at)


def _run_ended(tx: Transaction, event: Event) -> None:
    status = event.type.removeprefix("run.")
    facts = event.facts
    tx.execute(END, (status, _summary(facts), event.at, event.run_id))
    for table in ("waits", "inbox", "webhooks"):
        tx.execute(f"DELETE FROM {table} WHERE run_id = ?", (event.run_id,))  # noqa: S608
    tx.ended[event.run_id] = event
    mailbox.tell_waiting(tx, event.run_id)
    lanes.admit_next(tx, event.run_id, event.at)
    if "handler" in facts:
        _create_once(tx, new_run_from(facts["handler"], event.at))


def _summary(facts: dict[str, Any]) -> str | None:
    error = facts.get("error")
    if error is None:
        return None
    text = f"{error['type']}: {error['message']}"
    return text if len(text) <= 500 else text[:499] + "…"


def _run_parked(tx: Transaction, event: Event) -> None:
    status = event.type.removeprefix("run.")
    tx.execute(PARK, (status, _summary(event.facts), event.run_id))
    tx.ended[event.run_id] = event  # whoever waits for its end should look
    tx.execute("DELETE FROM inbox WHERE run_id = ? AND kind = 'pause'", (event.run_id,))


def _cancel_requested(tx: Transaction, event: Event) -> None:
    tx.execute("DELETE FROM inbox WHERE run_id = ? AND kind = 'cancel'", (event.run_id,))


def _wait_created(tx: Transaction, event: Event) -> None:
    facts = event.facts
    mailbox.open_wait(tx, event.run_id, event.key, facts["name"], facts.get("match") or {})


def _wait_closed(tx: Transaction, event: Event) -> None:
    message = event.facts.get("message")
    mailbox.close_wait(tx, event.run_id, event.key, message)


def _child_started(tx: Transaction, event: Event) -> None:
    new = new_run_from(event.facts["run"], event.at)
    _create_once(tx, new)
    mailbox.open_wait(tx, event.run_id, event.key, mailbox.END_OF + new.id, {})


def _child_dropped(tx: Transaction, event: Event) -> None:
    mailbox.close_wait(tx, event.run_id, event.key, None)
    child = queries.get(tx.connection, event.facts["run_id"])
    if child is not None and not child.ended:
        cancel(tx, child, event.at)


def _create_once(tx: Transaction, new: NewRun) -> None:
    if existing(tx, new) is None:
        create(tx, new)


def new_run_from(data: dict[str, Any], at: float) -> NewRun:
    """A run described in an event's facts."""
    fields = dict(data)
    text = fields.pop("input")
    return NewRun(**fields, input=text.encode(), created_at=at, due_at=at)


def _webhook_created(tx: Transaction, event: Event) -> None:
    facts = event.facts
    row = (facts["token"], event.run_id, facts["name"])
    tx.execute("INSERT INTO webhooks VALUES (?, ?, ?)", row)


def _attributes_set(tx: Transaction, event: Event) -> None:
    set_attributes(tx, event.run_id, json.loads(event.value or b"{}"))


NEXT_CHUNK = "SELECT coalesce(max(idx) + 1, 0) FROM chunks WHERE run_id = ? AND stream = ?"


def write_chunk(
    tx: Transaction, run_id: str, stream: str, data: bytes, at: float, step: str, attempt: int
) -> int:
    """Add a piece to a stream; returns its index."""
    index = int(tx.execute(NEXT_CHUNK, (run_id, stream)).fetchone()[0])
    row = (run_id, stream, index, data, at, step, attempt)
    tx.execute("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    return index


def _stream_written(tx: Transaction, event: Event) -> None:
    write_chunk(tx, event.run_id, event.facts["stream"], event.value or b"", event.at, "", 1)


BY_TYPE: dict[str, Callable[[Transaction, Event], None]] = {
    RUN_COMPLETED: _run_ended,
    RUN_FAILED: _run_ended,
    RUN_CANCELLED: _run_ended,
    RUN_STUCK: _run_parked,
    RUN_PAUSED: _run_parked,
    CANCEL_REQUESTED: _cancel_requested,
    WAIT_CREATED: _wait_created,
    WAIT_RECEIVED: _wait_closed,
    WAIT_TIMED_OUT: _wait_closed,
    CHILD_STARTED: _child_started,
    CHILD_ENDED: _wait_closed,
    CHILD_DROPPED: _child_dropped,
    WEBHOOK_CREATED: _webhook_created,
    ATTRIBUTES_SET: _attributes_set,
    STREAM_WRITTEN: _stream_written,
}
