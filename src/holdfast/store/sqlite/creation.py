"""Creating runs: the row and the first event of the journal, in one transaction.

Atomic by key: of any number of starts with the same workflow and key one creates the run, and
all get it, also after it has ended.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from holdfast.errors import KeyUsed
from holdfast.records import Status
from holdfast.store.base import NewRun
from holdfast.store.sqlite import admission, events
from holdfast.store.sqlite.database import Transaction

BY_KEY = """
SELECT id, finished_at FROM runs
WHERE workflow = ? AND key = ? AND continued_as IS NULL AND replaced_by IS NULL
"""
BY_ID = "SELECT id FROM runs WHERE id = ?"
INSERT = """
INSERT INTO runs (id, workflow, version, key, parent_id, forked_from, status, due_at, created_at,
                  run_limit, lane, lane_limit, admitted, timeout, deadline, owner, fence, claim_seq,
                  started_at, begun_at, pace, queue_at, gather, first_message)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
        (SELECT coalesce(max(id), 0) + 1 FROM messages))
"""
SET_ATTRIBUTE = """
INSERT INTO attributes (run_id, name, value) VALUES (?, ?, ?)
ON CONFLICT (run_id, name) DO UPDATE SET value = excluded.value
"""


def existing(tx: Transaction, new: NewRun) -> str | None:
    """The id of the run that this one would be a second of; raises KeyUsed if it may not be.

    Where there is one and this one is to take its key over, it gives the key up; whoever creates
    this one cancels it then (`projections.replace_others`).
    """
    if new.id not in tx.absent and tx.execute(BY_ID, (new.id,)).fetchone() is not None:
        return new.id  # asked again for the very same: whatever has become of it
    if new.key is None:
        return None
    found = tx.execute(BY_KEY, (new.workflow, new.key)).fetchone()
    if found is None:
        return None
    holder, ended = str(found[0]), found[1] is not None
    if ended and new.key_policy == "refuse":
        raise KeyUsed(
            f"the key {new.key!r} of {new.workflow} was used before, by {holder}",
            hint="use another key, or the key policy `return` or `start_new`",
        )
    if (ended and new.key_policy == "start_new") or new.key_policy == "replace":
        tx.execute("UPDATE runs SET replaced_by = ? WHERE id = ?", (new.id, holder))
        if not ended:
            tx.replaced.append(holder)
        return None
    return holder


class Owner(NamedTuple):
    """Who takes a new run in hand as soon as it is there, and when that is."""

    worker: str
    at: float


def create(tx: Transaction, new: NewRun, owner: Owner | None = None) -> Status:
    """Create a run that does not exist yet: pending, or queued behind others.

    One that is due and admitted is `running` in the hand of `owner` from the first, at fence 1:
    to write its row and then claim it would be to write it, and all of its indexes, twice.
    """
    status = insert_row(tx, new, None, owner)
    tx.rows.append(events.row(tx, new.first_event()))
    tx.last_seq[new.id] = 1
    return status


def insert_row(
    tx: Transaction, new: NewRun, forked_from: str | None, owner: Owner | None = None
) -> Status:
    """The run's row: admitted at once, or queued if its workflow or lane is full."""
    pace = None if new.pace is None else new.pace.as_text()
    limits = admission.Limits(new.workflow, new.run_limit, new.lane, new.lane_limit, pace)
    status, admitted = admission.place_for(tx, limits, new.due_at, new.created_at)
    if owner is not None and admitted and new.due_at <= owner.at:
        status, due_at = "running", None
        claimed = (owner.worker, 1, 1, owner.at, owner.at)
    else:
        due_at, claimed = new.due_at, (None, 0, 0, None, None)
        if due_at <= new.created_at:
            due_at -= new.priority  # workers take those first that are due longest
    tx.later(
        INSERT,
        (
            new.id,
            new.workflow,
            new.version,
            new.key,
            new.parent_id,
            forked_from,
            status,
            due_at,
            new.created_at,
            new.run_limit,
            new.lane,
            new.lane_limit,
            admitted,
            new.timeout,
            new.deadline,
            *claimed,
            pace,
            new.due_at - new.priority if limits.any else None,
            None if new.gather is None else new.gather.key,
        ),
    )
    set_attributes(tx, new.id, new.attributes)
    tx.due = tx.due or status == "pending"
    return status


def set_attributes(tx: Transaction, run_id: str, attributes: dict[str, Any]) -> None:
    """Write a run's attributes; None removes one. What is half a character becomes a `?`: they
    are there to be shown and searched."""
    for given, value in attributes.items():
        name = _characters(given)
        if value is None:
            tx.execute("DELETE FROM attributes WHERE run_id = ? AND name = ?", (run_id, name))
        else:
            text = _characters(json.dumps(value, ensure_ascii=False))
            tx.execute(SET_ATTRIBUTE, (run_id, name, text))


def _characters(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
