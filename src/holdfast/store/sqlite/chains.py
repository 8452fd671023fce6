"""Chains: runs that have gone on as new ones, and the key, limits, mail and readers they hand on.

A run ends as `continued` and its successor is created in one transaction: at no moment is there
none, or two that could act. The successor has the key, parent, attributes, limits and place of
the one before it, the events that one has not taken, and the updates it has not received.
Whoever waits for the end of the old run waits for that of the new one.
"""

from __future__ import annotations

from holdfast.records import Event
from holdfast.records.flow import Pace
from holdfast.store.base import NewRun
from holdfast.store.sqlite import creation, queries
from holdfast.store.sqlite.database import Transaction

HANDED_ON = "SELECT run_limit, lane, lane_limit, pace, first_message FROM runs WHERE id = ?"
LEAVE = "UPDATE runs SET continued_as = ?, chain = coalesce(chain, id) WHERE id = ?"
# It takes the place of the old one, which ends with it: nobody can come in between.
ENTER = """
UPDATE runs SET status = 'pending', admitted = 1, first_message = ?, continued_from = ?,
  chain = (SELECT chain FROM runs WHERE id = ?)
WHERE id = ?
"""
READDRESS = """
UPDATE messages SET run_id = ? WHERE run_id = ?
  AND NOT EXISTS (SELECT 1 FROM receipts r
                  WHERE r.run_id = messages.run_id AND r.message = messages.id)
"""
# An update goes with its message: what the old run has received it had to answer itself.
HAND_ON_UPDATES = """
UPDATE updates SET run_id = ? WHERE run_id = ? AND status = 'pending'
  AND EXISTS (SELECT 1 FROM messages m WHERE m.run_id = ?
              AND m.event_id = '@update/' || updates.chain || '/' || updates.id)
"""
TAKEN = "UPDATE taken SET run_id = ? WHERE run_id = ?"
RECEIPTS = "UPDATE receipts SET run_id = ? WHERE run_id = ?"
FIRST_UNREAD = """
SELECT min(m.id) FROM messages m
WHERE m.id >= ? AND (m.run_id IS NULL OR m.run_id = ?)
  AND NOT EXISTS (SELECT 1 FROM receipts WHERE run_id = ? AND message = m.id)
"""
NEXT_MESSAGE = "SELECT coalesce(max(id), 0) + 1 FROM messages"
FORGET_RECEIPTS = "DELETE FROM receipts WHERE run_id = ? AND message < ?"
PUBLISHED = "INSERT INTO published SELECT ?, name, value, at FROM published WHERE run_id = ?"
WAITING = "UPDATE waits SET name = ? WHERE name = ?"


def succeed(tx: Transaction, event: Event) -> None:
    """Create the run that another one goes on as, and hand everything on; the old one then ends."""
    old = queries.get(tx.connection, event.run_id)
    assert old is not None, event.run_id
    handed_on = tx.execute(HANDED_ON, (old.id,)).fetchone()
    run_limit, lane, lane_limit, pace, first_message = handed_on
    facts = event.facts
    new = NewRun(
        id=facts["run_id"],
        workflow=old.workflow,
        version=facts["version"],
        input=event.value or b"{}",
        meta={"seed": facts["run_id"], "continued_from": old.id},
        created_at=event.at,
        due_at=event.at,
        key=old.key,
        parent_id=old.parent_id,
        attributes=old.attributes,
        run_limit=run_limit,
        lane=lane,
        lane_limit=lane_limit,
        pace=None if pace is None else Pace.of_text(pace),
        timeout=old.timeout,
    )
    tx.execute(LEAVE, (new.id, old.id))
    creation.create(tx, new)
    tx.execute(READDRESS, (new.id, old.id))
    tx.execute(HAND_ON_UPDATES, (new.id, old.id, new.id))
    tx.execute(RECEIPTS, (new.id, old.id))
    tx.execute(TAKEN, (new.id, old.id))
    tx.execute(PUBLISHED, (new.id, old.id))
    tx.execute(WAITING, (f"@run/{new.id}", f"@run/{old.id}"))
    (unread,) = tx.execute(FIRST_UNREAD, (first_message, new.id, new.id)).fetchone()
    if unread is None:
        (unread,) = tx.execute(NEXT_MESSAGE).fetchone()
    # What was taken before the first that was not is never offered again.
    tx.execute(FORGET_RECEIPTS, (new.id, unread))
    tx.execute(ENTER, (unread, old.id, old.id, new.id))
    tx.due = True
