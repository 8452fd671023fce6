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
    RUN_CONTINUED,
    RUN_FAILED,
    RUN_PAUSED,
    RUN_RESUMED,
    RUN_STUCK,
    STEP_PUBLISHED,
    STREAM_WRITTEN,
    UPDATE_ANSWERED,
    VALUE_PUBLISHED,
    WAIT_CREATED,
    WAIT_RECEIVED,
    WAIT_TIMED_OUT,
    WEBHOOK_CREATED,
    Event,
    Run,
)
from holdfast.records.flow import Pace
from holdfast.store.base import END_OF, TERMINATED, NewRun
from holdfast.store.sqlite import admission, chains, mailbox, queries, updates
from holdfast.store.sqlite import events as rows
from holdfast.store.sqlite.creation import create, existing, set_attributes
from holdfast.store.sqlite.database import Transaction

END = """
UPDATE runs SET status = ?, error = ?, finished_at = ?, owner = NULL, due_at = NULL WHERE id = ?
"""
LAST_SEQ = """
SELECT max(claim_seq, coalesce((SELECT max(seq) FROM events WHERE run_id = runs.id), 0))
FROM runs WHERE id = ?
"""
# A run that has not begun keeps its moment: a delay is not lost by a pause.
PARK = """
UPDATE runs SET status = ?, error = ?, owner = NULL,
  due_at = CASE WHEN begun_at IS NULL THEN due_at END
WHERE id = ?
"""
_OF_LIVE_RUNS = ("waits", "inbox", "taken", "webhooks")
# What there is to do when a run ends: mostly nothing, which one question finds out.
LEFT = """
SELECT EXISTS (SELECT 1 FROM waits WHERE run_id = r.id),
  EXISTS (SELECT 1 FROM inbox WHERE run_id = r.id),
  EXISTS (SELECT 1 FROM taken WHERE run_id = r.id),
  EXISTS (SELECT 1 FROM webhooks WHERE run_id = r.id),
  EXISTS (SELECT 1 FROM updates WHERE run_id = r.id AND status = 'pending'),
  EXISTS (SELECT 1 FROM waits WHERE name = ?),
  r.run_limit IS NOT NULL OR r.lane_limit IS NOT NULL
FROM runs r WHERE r.id = ?
"""
LEFT_OF_MANY = (
    LEFT.replace("name = ?", "name = '@run/' || r.id")
    .replace("SELECT EXISTS", "SELECT r.id, EXISTS", 1)
    .replace("r.id = ?", "r.id IN (SELECT value FROM json_each(?))")
)
GO_ON = "UPDATE runs SET status = 'waiting', due_at = ? WHERE id = ?"
REVIVE = """
UPDATE runs SET status = 'waiting', due_at = ?, error = NULL, crashes = 0 WHERE id = ?
"""
BEGUN = "SELECT due_at, begun_at IS NOT NULL FROM runs WHERE id = ?"
IN_LAST_LIFE = "SELECT coalesce(max(seq), 0) FROM events WHERE run_id = ? AND type = 'run.retried'"
CANCELLING = (
    "SELECT 1 FROM events WHERE run_id = ? AND seq > ? AND type = 'cancel.requested' LIMIT 1"
)
LAST_EVENT = "SELECT type, meta FROM events WHERE run_id = ? ORDER BY seq DESC LIMIT 1"
REQUESTS = """
SELECT kind FROM inbox WHERE run_id = ? AND kind IN ('cancel', 'pause', 'resume', 'terminate')
"""
MAY_GO_ON = "SELECT status IN ('pending', 'waiting') FROM runs WHERE id = ?"
# Children that the body of a run waits for; not runs that it has started and then waits for.
OPEN_CHILDREN = """
SELECT child.id FROM waits w
JOIN runs child ON child.id = substr(w.name, 6) AND child.parent_id = w.run_id
WHERE w.run_id = ? AND substr(w.name, 1, 5) = '@run/' AND child.finished_at IS NULL
  AND EXISTS (SELECT 1 FROM events e
              WHERE e.run_id = w.run_id AND e.key = w.key AND e.type = 'child.started')
"""


def write(tx: Transaction, events: Sequence[Event]) -> None:
    """Add events whose place was checked to their journal, and everything that follows."""
    for event in events:
        tx.rows.append(rows.row(tx, event))
        tx.last_seq[event.run_id] = event.seq
        project = BY_TYPE.get(event.type)
        if project is not None:
            project(tx, event)  # which may add an event of its own, behind this one


def write_unowned(
    tx: Transaction, run_id: str, type: str, at: float, facts: dict[str, Any]
) -> None:
    """Add an event to the journal of a run that nobody owns, as if claimed for a moment."""
    last = tx.last_seq.get(run_id) or tx.execute(LAST_SEQ, (run_id,)).fetchone()[0]
    tx.execute("UPDATE runs SET fence = fence + 1 WHERE id = ?", (run_id,))
    tx.fences.pop(run_id, None)
    write(tx, [Event(run_id, last + 1, type, "", at, json.dumps(facts))])


# --- what others ask of a run ---------------------------------------------------------------
#
# The owner of a run carries requests out; they are left in its inbox. A run that nobody owns is
# changed here. A worker may die, give the run back or park it with requests in the inbox: then
# they are carried out with the parking, or before the run is handed out again. So nobody ever
# goes on with a run before what was asked of it is in its journal.


def cancel(tx: Transaction, run: Run, at: float, facts: dict[str, Any] | None = None) -> None:
    """Cancel a run that has not ended: at once if it has nothing to clean up.

    Its body is told at the point where it stopped: nothing is begun but what it does because of
    the cancellation. Asked twice is asked once, for the second would interrupt the cleaning up.
    """
    if run.owner is not None:
        mailbox.request(tx, run.id, "cancel", at)
    elif not _begun(tx, run.id) or run.status == "stuck":
        # Nothing to clean up, or no code that could: there is no body to run `finally` in.
        end_at_once(tx, run.id, at, {"requested_at": at})
    else:
        if not is_cancelling(tx, run.id):
            held = {"held": _held(tx, run.id), **(facts or {})}
            write_unowned(tx, run.id, CANCEL_REQUESTED, at, held)
        tx.execute(GO_ON, (at, run.id))
        tx.due = True


def terminate(tx: Transaction, run: Run, at: float) -> None:
    """End a run without asking its body; the children it waits for are cancelled."""
    if run.owner is not None:
        mailbox.request(tx, run.id, "terminate", at)
    else:
        end_at_once(tx, run.id, at, {"requested_at": at, **TERMINATED})


def pause(tx: Transaction, run: Run, at: float) -> None:
    """Pause a run that may go on: nothing new is begun."""
    if run.owner is not None:
        mailbox.withdraw_requests(tx, run.id, "resume")
        mailbox.request(tx, run.id, "pause", at)
    else:
        write_unowned(tx, run.id, RUN_PAUSED, at, {})


def resume(tx: Transaction, run: Run, at: float) -> None:
    """Let a run go on that is paused or stuck, or was asked to pause and has not yet."""
    if run.owner is not None:
        mailbox.withdraw_requests(tx, run.id, "pause")
        mailbox.request(tx, run.id, "resume", at)
        return
    write_unowned(tx, run.id, RUN_RESUMED, at, {"from": run.status})
    due_at, begun = tx.execute(BEGUN, (run.id,)).fetchone()
    if begun:
        tx.execute(REVIVE, (at, run.id))
        tx.due = True
    else:
        admission.enter(tx, run.id, due_at or at, at)


def do_what_was_asked(tx: Transaction, run_id: str, at: float) -> bool:
    """Carry out the requests left for a run whose owner is gone; False if it may not go on."""
    asked = {str(row[0]) for row in tx.execute(REQUESTS, (run_id,))}
    if not asked:
        return True
    mailbox.withdraw_requests(tx, run_id, *asked)
    run = queries.get(tx.connection, run_id)
    assert run is not None, run_id
    if "terminate" in asked:
        terminate(tx, run, at)
    elif "cancel" in asked:
        cancel(tx, run, at)
    elif "pause" in asked and run.status not in ("paused", "stuck"):
        pause(tx, run, at)
    elif "resume" in asked and run.status == "paused":
        resume(tx, run, at)
    return bool(tx.execute(MAY_GO_ON, (run_id,)).fetchone()[0])


def end_at_once(tx: Transaction, run_id: str, at: float, facts: dict[str, Any]) -> None:
    """Cancel a run without its body: it has none, or none that could do anything about it."""
    write_unowned(tx, run_id, RUN_CANCELLED, at, {**facts, "at_once": True})


def is_cancelling(tx: Transaction, run_id: str) -> bool:
    """Whether the run was cancelled and is on its way to its end, in this life of its."""
    tx.flush()
    retried = tx.execute(IN_LAST_LIFE, (run_id,)).fetchone()[0]
    return tx.execute(CANCELLING, (run_id, retried)).fetchone() is not None


def _begun(tx: Transaction, run_id: str) -> bool:
    """Whether any worker has had the run since it was made, or last retried."""
    return bool(tx.execute(BEGUN, (run_id,)).fetchone()[1])


def _held(tx: Transaction, run_id: str) -> list[int]:
    """What was recorded while the run was being paused, and its body has not seen."""
    type, meta = tx.execute(LAST_EVENT, (run_id,)).fetchone()
    return json.loads(meta).get("held", []) if type == RUN_PAUSED else []


def _run_ended(tx: Transaction, event: Event) -> None:
    status = event.type.removeprefix("run.")
    facts = event.facts
    tx.later(END, (status, _summary(facts), event.at, event.run_id))
    if "at_once" in facts:  # with no body that would have told its children
        _cancel_children(tx, event.run_id, event.at)
    left = tx.left.get(event.run_id)
    if left is None:
        left = tx.execute(LEFT, (END_OF + event.run_id, event.run_id)).fetchone()
    for table, found in zip(_OF_LIVE_RUNS, left, strict=False):
        if found:
            tx.execute(f"DELETE FROM {table} WHERE run_id = ?", (event.run_id,))  # noqa: S608
    *_, asked, awaited, limited = left
    tx.ended[event.run_id] = event
    if asked:
        updates.run_ended(tx, event)
    if awaited:
        mailbox.tell_waiting(tx, event.run_id)
    if limited:
        admission.admit_next(tx, event.run_id, event.at)
    if "handler" in facts:
        _create_once(tx, new_run_from(facts["handler"], event.at))


def _run_continued(tx: Transaction, event: Event) -> None:
    chains.succeed(tx, event)
    _run_ended(tx, event)


def _cancel_children(tx: Transaction, run_id: str, at: float) -> None:
    tx.flush()
    for (child_id,) in tx.execute(OPEN_CHILDREN, (run_id,)).fetchall():
        child = queries.get(tx.connection, child_id)
        assert child is not None, child_id
        cancel(tx, child, at)


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
    mailbox.withdraw_requests(tx, event.run_id, "pause")
    do_what_was_asked(tx, event.run_id, event.at)


def _cancel_requested(tx: Transaction, event: Event) -> None:
    mailbox.withdraw_requests(tx, event.run_id, "cancel", "pause", "resume")


def _wait_created(tx: Transaction, event: Event) -> None:
    facts = event.facts
    mailbox.open_wait(tx, event.run_id, event.key, facts["name"], facts.get("match") or {})


def _wait_closed(tx: Transaction, event: Event) -> None:
    message = event.facts.get("message")
    mailbox.close_wait(tx, event.run_id, event.key, message)


def _child_started(tx: Transaction, event: Event) -> None:
    new = new_run_from(event.facts["run"], event.at)
    if _create_once(tx, new):
        mailbox.open_wait_for(tx, event.run_id, event.key, new.id)
    else:
        mailbox.open_wait(tx, event.run_id, event.key, END_OF + new.id, {})


def _child_dropped(tx: Transaction, event: Event) -> None:
    mailbox.close_wait(tx, event.run_id, event.key, None)
    child_id = queries.newest(tx.connection, event.facts["run_id"])
    child = queries.get(tx.connection, child_id)
    if child is not None and not child.ended:
        cancel(tx, child, event.at)


def _create_once(tx: Transaction, new: NewRun) -> bool:
    """Create a run; False if it was there before."""
    if existing(tx, new) is not None:
        return False
    create(tx, new)
    replace_others(tx, new.created_at)
    return True


def replace_others(tx: Transaction, at: float) -> None:
    """Cancel the runs whose key new ones have taken over."""
    while tx.replaced:
        old = queries.get(tx.connection, tx.replaced.pop())
        if old is not None and not old.ended:
            cancel(tx, old, at)


def new_run_from(data: dict[str, Any], at: float) -> NewRun:
    """A run described in an event's facts."""
    fields = dict(data)
    text = fields.pop("input")
    due_at = at + fields.pop("delay", 0.0)
    if "pace" in fields:
        fields["pace"] = Pace.of_text(fields["pace"])
    return NewRun(**fields, input=text.encode(), created_at=at, due_at=due_at)


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


PUBLISH = """
INSERT INTO published (run_id, name, value, at) VALUES (?, ?, ?, ?)
ON CONFLICT (run_id, name) DO UPDATE SET value = excluded.value, at = excluded.at
"""


def _published(tx: Transaction, event: Event) -> None:
    row = (event.run_id, event.facts["name"], event.value, event.at)
    tx.execute(PUBLISH, row)


def republish(tx: Transaction, history: Sequence[Event]) -> None:
    """Keep what was published in a journal that a fork has taken over."""
    for event in history:
        if event.type in (VALUE_PUBLISHED, STEP_PUBLISHED):
            _published(tx, event)


BY_TYPE: dict[str, Callable[[Transaction, Event], None]] = {
    RUN_COMPLETED: _run_ended,
    RUN_FAILED: _run_ended,
    RUN_CANCELLED: _run_ended,
    RUN_CONTINUED: _run_continued,
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
    VALUE_PUBLISHED: _published,
    STEP_PUBLISHED: _published,
    UPDATE_ANSWERED: updates.answered,
}
