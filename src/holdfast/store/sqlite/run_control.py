"""Steering a run from outside: cancel, terminate, pause, resume, retry, fork.

A run that somebody owns gets a request in its inbox. A run that nobody owns is changed here, by
an event of its own and with its fence raised, as if we had claimed it for a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from holdfast.errors import KeyUsed, NotFound, Refused
from holdfast.records import (
    CANCEL_REQUESTED,
    CHILD_DROPPED,
    CHILD_ENDED,
    CHILD_STARTED,
    COMPLETIONS,
    RUN_RETRIED,
    RUN_STUCK,
    WAIT_CREATED,
    WEBHOOK_CREATED,
    Event,
    Run,
)
from holdfast.records.flow import Pace
from holdfast.store.base import END_OF, NewRun
from holdfast.store.sqlite import (
    admission,
    approvals,
    creation,
    deadlines,
    events,
    mailbox,
    projections,
    queries,
    updates,
)
from holdfast.store.sqlite.database import Transaction

LIMITS = "SELECT run_limit, lane, lane_limit, pace FROM runs WHERE id = ?"
REQUESTED = "SELECT 1 FROM inbox WHERE run_id = ? AND kind = ? LIMIT 1"
NOT_BEGUN = """
UPDATE runs SET begun_at = NULL,
  admitted = CASE WHEN run_limit IS NULL AND lane_limit IS NULL AND pace IS NULL THEN 1 ELSE 0 END
WHERE id = ?
"""


REPLACED = "SELECT replaced_by FROM runs WHERE id = ?"


def request(
    tx: Transaction, run_id: str, kind: Literal["cancel", "pause", "terminate"], at: float
) -> None:
    """Ask for a run to be cancelled, terminated or paused; at once if nobody has it in hand."""
    run = _existing(tx, run_id)
    if run.ended:
        if kind != "pause" and run.status == "cancelled":
            return
        raise Refused(f"{run_id} is {run.status}: there is nothing left to {kind}")
    if kind == "cancel":
        projections.cancel(tx, run, at)
    elif kind == "terminate":
        projections.terminate(tx, run, at)
    else:
        _pause(tx, run, at)


def _pause(tx: Transaction, run: Run, at: float) -> None:
    if run.status == "paused" or _requested(tx, run.id, "pause"):
        return
    if run.status == "stuck":
        raise Refused(f"{run.id} is stuck: it does not go on by itself anyway")
    if _requested(tx, run.id, "cancel") or projections.is_cancelling(tx, run.id):
        raise Refused(f"{run.id} is being cancelled: it can't be paused any more")
    projections.pause(tx, run, at)


def resume(tx: Transaction, run_id: str, at: float) -> None:
    """Let a paused or stuck run go on, or one that is about to pause."""
    run = _existing(tx, run_id)
    if run.status in ("paused", "stuck") or _requested(tx, run_id, "pause"):
        projections.resume(tx, run, at)
    else:
        raise Refused(f"{run_id} is {run.status}, not paused or stuck")


def _requested(tx: Transaction, run_id: str, kind: str) -> bool:
    """Whether a request waits for the run's owner, or the next one."""
    return tx.execute(REQUESTED, (run_id, kind)).fetchone() is not None


def retry(tx: Transaction, run_id: str, at: float) -> None:
    """Let a failed run go on from where it failed: what succeeded is kept."""
    run = _existing(tx, run_id)
    if run.status != "failed":
        raise Refused(f"{run_id} is {run.status}: only a failed run can be retried")
    run_id = run.id
    (replaced_by,) = tx.execute(REPLACED, (run_id,)).fetchone()
    if replaced_by is not None:
        raise KeyUsed(f"the key of {run_id} belongs to {replaced_by} now", hint="fork it instead")
    tx.flush()
    history = events.load(tx.connection, run_id)
    void: list[int] = history[-1].facts.get("caused_by", [])
    _check_children_ended(tx, history, void)
    _go_on_again(tx, run_id, history, void, at)


def _go_on_again(
    tx: Transaction, run_id: str, history: Sequence[Event], void: list[int], at: float
) -> None:
    """Let a run that has ended go on, as if the events in `void` had not been."""
    facts: dict[str, Any] = {"void": void, "failed_seq": history[-1].seq}
    deadline = deadlines.renew(tx, run_id, at)
    if deadline is not None:
        facts["deadline"] = deadline
    projections.write_unowned(tx, run_id, RUN_RETRIED, at, facts)
    tx.execute(NOT_BEGUN, (run_id,))
    admission.enter(tx, run_id, at, at)
    for event in history:
        if event.seq in void and event.type == CHILD_ENDED:
            _retry_child(tx, event.facts["run_id"], at)
    for child_id in _dropped_by(history, void):
        _revive_child(tx, child_id, at)
    reopen(tx, run_id, [event for event in history if event.seq not in void])
    approvals.reopen(tx, run_id)
    updates.reopen(tx, run_id)


def _retry_child(tx: Transaction, child_id: str, at: float) -> None:
    """The failure came from a child: it is the child that has to go on."""
    child = queries.get(tx.connection, child_id)
    if child is not None and child.status == "failed":
        retry(tx, child_id, at)


def _dropped_by(history: Sequence[Event], void: list[int]) -> list[str]:
    """The children that were cancelled because their parent's time was over."""
    cancels = [e.seq for e in history if e.seq in void and e.type == CANCEL_REQUESTED]
    if not cancels:
        return []
    started = {e.facts["run"]["id"] for e in history if e.type == CHILD_STARTED}
    dropped = [e for e in history if e.seq > cancels[0] and e.type == CHILD_DROPPED]
    children = [str(e.facts["run_id"]) for e in dropped]
    if history[-1].facts.get("at_once"):  # which has cancelled all that were waited for
        closed = {e.key for e in history if e.type in COMPLETIONS}
        waited = [e for e in history if e.type == CHILD_STARTED and e.key not in closed]
        children += [str(e.facts["run"]["id"]) for e in waited]
    return [child for child in dict.fromkeys(children) if child in started]


def _check_children_ended(tx: Transaction, history: Sequence[Event], void: list[int]) -> None:
    for child_id in _dropped_by(history, void):
        child = queries.get(tx.connection, queries.newest(tx.connection, child_id))
        if child is not None and not child.ended:
            raise Refused(
                f"{history[0].run_id} can't be retried yet: its child {child.id} was cancelled "
                "with it, and has not ended",
                hint="try again when it has, or terminate it",
            )


def _revive_child(tx: Transaction, child_id: str, at: float) -> None:
    """A child that was cancelled with its parent goes on with it, from where it was."""
    child = queries.get(tx.connection, queries.newest(tx.connection, child_id))
    if child is None or child.status != "cancelled":
        return
    history = events.load(tx.connection, child.id)
    lives = [e.seq for e in history if e.type == RUN_RETRIED]
    began = lives[-1] if lives else 0
    void = [e.seq for e in history if e.seq > began and e.type == CANCEL_REQUESTED]
    _go_on_again(tx, child.id, history, void, at)


def fork(tx: Transaction, new: NewRun, source: str, history: Sequence[Event]) -> str:
    """Create a run with a journal of its own, begun with what another one recorded.

    It counts towards the limits that its source was started with, unless it brings its own.
    """
    if new.run_limit is None and new.lane_limit is None and new.pace is None:
        run_limit, lane, lane_limit, pace = tx.execute(LIMITS, (source,)).fetchone()
        pace = None if pace is None else Pace.of_text(pace)
        new = replace(new, run_limit=run_limit, lane=lane, lane_limit=lane_limit, pace=pace)
    creation.insert_row(tx, new, forked_from=source)
    for event in history:
        tx.rows.append(events.row(tx, event))
    tx.last_seq[new.id] = history[-1].seq
    reopen(tx, new.id, history)
    projections.republish(tx, history)
    return new.id


RESTORE = """
INSERT INTO runs (id, workflow, version, parent_id, forked_from, status, created_at, started_at,
                  begun_at, finished_at, error, timeout, deadline, continued_from, continued_as,
                  claim_seq, first_message)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
        (SELECT coalesce(max(id), 0) + 1 FROM messages))
"""


def restore(tx: Transaction, run: Run, history: Sequence[Event]) -> None:
    """Write a run that has ended elsewhere: nothing of it is open, and nobody is told."""
    if queries.get(tx.connection, run.id) is not None:
        raise Refused(f"{run.id} is in this store already")
    tx.execute(
        RESTORE,
        (
            run.id,
            run.workflow,
            run.version,
            run.parent_id,
            run.forked_from,
            run.status,
            run.created_at,
            run.started_at,
            run.started_at,
            run.finished_at,
            run.error,
            run.timeout,
            run.deadline,
            run.continued_from,
            run.continued_as,
            history[-1].seq,
        ),
    )
    creation.set_attributes(tx, run.id, run.attributes)
    for event in history:
        tx.rows.append(events.row(tx, event))
    tx.last_seq[run.id] = history[-1].seq
    projections.republish(tx, history)


def reopen(tx: Transaction, run_id: str, history: Sequence[Event]) -> None:
    """Put back the waits and webhooks that a journal left open."""
    closed = {event.key for event in history if event.type in COMPLETIONS}
    for event in history:
        facts: dict[str, Any] = event.facts
        if event.type == WEBHOOK_CREATED:
            row = (facts["token"], run_id, facts["name"])
            tx.execute("INSERT INTO webhooks VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row)
        elif event.key in closed:
            continue
        elif event.type == WAIT_CREATED:
            mailbox.open_wait(tx, run_id, event.key, facts["name"], facts.get("match") or {})
        elif event.type == CHILD_STARTED:
            name = END_OF + facts["run"]["id"]
            mailbox.open_wait(tx, run_id, event.key, name, {})


def park(tx: Transaction, run_id: str, facts: dict[str, Any], at: float) -> None:
    """Put a run aside whose journal can't be read."""
    projections.write_unowned(tx, run_id, RUN_STUCK, at, facts)


def _existing(tx: Transaction, run_id: str) -> Run:
    """The run that is meant: of a chain, the one that it has come to."""
    run = queries.get(tx.connection, queries.newest(tx.connection, run_id))
    if run is None:
        raise NotFound(f"there is no run {run_id}", hint="holdfast runs list shows what there is")
    return run
