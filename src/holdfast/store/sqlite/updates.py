"""Updates in the store: sent once, answered once, and ended with their run at the latest.

An update is a message for one run and a row that says how it stands. The row is the answer: it
is written with the event in which the body answers, or with the one that ends the run, so that
whoever asks again by the same id is told the same. A message carries the answer to runs that
wait for it.
"""

from __future__ import annotations

import json
from typing import Any

from holdfast.errors import NotFound, UpdateMismatch, UpdateUnanswered
from holdfast.records import ErrorInfo, Event
from holdfast.records.live import ANSWER, UPDATE, UpdateRecord, event_id_of, update_of
from holdfast.store.connection import Connection
from holdfast.store.sqlite import mailbox, queries
from holdfast.store.sqlite.database import Transaction

COLUMNS = "SELECT chain, id, run_id, name, status, sent_at, ended_at, value, error FROM updates "
ONE = COLUMNS + "WHERE chain = ? AND id = ?"
PENDING = COLUMNS + "WHERE run_id = ? AND status = 'pending' ORDER BY sent_at, id"
UNANSWERED = COLUMNS + "WHERE run_id = ? AND status = 'unanswered'"
INSERT = "INSERT INTO updates (chain, id, run_id, name, status, sent_at) VALUES (?, ?, ?, ?, ?, ?)"
CLOSE = """
UPDATE updates SET status = ?, ended_at = ?, value = ?, error = ?
WHERE chain = ? AND id = ? AND run_id = ? AND status = 'pending'
"""
REOPEN = """
UPDATE updates SET status = 'pending', ended_at = NULL, error = NULL WHERE chain = ? AND id = ?
"""
SAME = "SELECT name, payload FROM messages WHERE event_id = ?"
RUN = "SELECT coalesce(chain, id), status, finished_at FROM runs WHERE id = ?"


def send(
    tx: Transaction, run_id: str, name: str, payload: bytes, id: str, at: float
) -> UpdateRecord:
    """Send an update to a run; sent before by the same id, say how it stands."""
    run_id = queries.newest(tx.connection, run_id)
    chain, status, finished_at = _run(tx.connection, run_id)
    known = get(tx.connection, run_id, id)
    if known is not None:
        _check_same(tx, known, name, payload)
        return known
    if finished_at is not None:
        raise UpdateUnanswered(f"{run_id} is {status}: nobody is left to answer {name!r}")
    tx.execute(INSERT, (chain, id, run_id, name, "pending", at))
    mailbox.send(tx, UPDATE + name, payload, event_id_of(chain, id), run_id, at)
    return UpdateRecord(chain, id, run_id, name, "pending", at)


def _check_same(tx: Transaction, known: UpdateRecord, name: str, payload: bytes) -> None:
    sent = tx.execute(SAME, (event_id_of(known.chain, known.id),)).fetchone()
    if sent is None or sent[0] != UPDATE + name or json.loads(sent[1]) != json.loads(payload):
        raise UpdateMismatch(
            f"the id {known.id} was used before, for another update of {known.chain}",
            hint="use one id per update; a changed update needs a new one",
        )


def get(connection: Connection, run_id: str, id: str) -> UpdateRecord | None:
    """An update that was sent to a run, or None."""
    chain = _run(connection, run_id)[0]
    row = connection.execute(ONE, (chain, id)).fetchone()
    return None if row is None else _read(row)


def _run(connection: Connection, run_id: str) -> tuple[str, str, float | None]:
    found = connection.execute(RUN, (run_id,)).fetchone()
    if found is None:
        raise NotFound(f"there is no run {run_id}", hint="holdfast runs list shows what there is")
    return found


def answered(tx: Transaction, event: Event) -> None:
    """The body has answered an update, or rejected it."""
    facts = event.facts
    chain, id = update_of(facts["update"])
    error = facts.get("error")
    _close(tx, event, chain, id, "answered" if error is None else "rejected", event.value, error)


def run_ended(tx: Transaction, event: Event) -> None:
    """A run has ended: what it had not answered nobody will answer."""
    for update in _rows(tx, PENDING, event.run_id):
        how = event.type.removeprefix("run.")
        error = {
            "type": "UpdateUnanswered",
            "message": f"{event.run_id} {_ENDED.get(how, f'was {how}')}",
        }
        _close(tx, event, update.chain, update.id, "unanswered", None, error)


_ENDED = {
    "completed": "completed without answering it",
    "failed": "failed before it had answered",
    "cancelled": "was cancelled before it had answered",
    "continued": "went on as a new run before it had answered",
}


def reopen(tx: Transaction, run_id: str) -> None:
    """A failed run is retried: what it had not answered, it may answer now."""
    for update in _rows(tx, UNANSWERED, run_id):
        tx.execute(REOPEN, (update.chain, update.id))
        # Who asks from now on waits for the answer, and is not told of the failure.
        name = f"{ANSWER}{update.chain}/{update.id}"
        tx.execute("DELETE FROM messages WHERE name = ?", (name,))


def _close(
    tx: Transaction,
    event: Event,
    chain: str,
    id: str,
    status: str,
    value: bytes | None,
    error: dict[str, Any] | None,
) -> None:
    text = None if error is None else json.dumps(error)
    closed = tx.execute(CLOSE, (status, event.at, value, text, chain, id, event.run_id))
    if closed.rowcount == 0:
        return  # a fork replays what another run received: it is not its to answer
    told = {"status": status, "value": json.loads(value or b"null"), "error": error}
    name = f"{ANSWER}{chain}/{id}"
    body = json.dumps(told).encode()
    mailbox.send(tx, name, body, f"{name}/{event.run_id}/{event.seq}", None, event.at)


def _rows(tx: Transaction, sql: str, run_id: str) -> list[UpdateRecord]:
    return [_read(row) for row in tx.execute(sql, (run_id,)).fetchall()]


def _read(row: tuple[Any, ...]) -> UpdateRecord:
    error = None if row[-1] is None else ErrorInfo.from_json(json.loads(row[-1]))
    return UpdateRecord(*row[:-1], error=error)
