"""Events, waits and mail: how a run learns of what others did.

A message is kept, and offered to every open wait it fits, now and later: to waits that open
after it was sent, too, as long as their run was there. A run takes each message at most once.
`match` is checked here; a `where` predicate is code and is checked by the run's owner.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

from holdfast.errors import CorruptEvent
from holdfast.records import RUN_ENDS, Event, Message
from holdfast.store import events
from holdfast.store.base import Mail
from holdfast.store.writer import Transaction

END_OF: Final = "@run/"
"""Prefix of the wait for the end of a run."""

INSERT_MAIL = "INSERT INTO inbox (run_id, kind, key, message, ref) VALUES (?, ?, ?, ?, ?)"
WAKE = """
UPDATE runs SET due_at = ? WHERE id = ? AND owner IS NULL AND status = 'waiting'
"""
EARLIER_MESSAGES = """
SELECT m.id, m.payload FROM messages m, runs r
WHERE r.id = ?1 AND m.name = ?2 AND m.id >= r.first_message
  AND (m.run_id IS NULL OR m.run_id = ?1)
  AND NOT EXISTS (SELECT 1 FROM receipts WHERE run_id = ?1 AND message = m.id)
ORDER BY m.id
"""
MAIL_OF_WORKER = """
SELECT i.id, i.run_id, i.kind, i.key, i.ref, m.id, m.event_id, m.name, m.run_id, m.payload, m.at
FROM runs r JOIN inbox i ON i.run_id = r.id LEFT JOIN messages m ON m.id = i.message
WHERE r.owner = ? ORDER BY i.id
"""


def open_wait(tx: Transaction, run_id: str, key: str, name: str, match: dict[str, Any]) -> None:
    """Begin to wait; what fits and is already there becomes mail at once."""
    # A retried run may open a wait that its failed life left open.
    tx.execute(
        "INSERT OR REPLACE INTO waits VALUES (?, ?, ?, ?, ?)",
        (run_id, key, name, _lane(match), json.dumps(match)),
    )
    if name.startswith(END_OF):
        other = name.removeprefix(END_OF)
        ended = "SELECT 1 FROM runs WHERE id = ? AND finished_at IS NOT NULL"
        if tx.execute(ended, (other,)).fetchone():
            _post(tx, run_id, "ended", key, ref=other)
        return
    for message, payload in tx.execute(EARLIER_MESSAGES, (run_id, name)).fetchall():
        if fits(match, json.loads(payload)):
            _post(tx, run_id, "event", key, message=message)


def close_wait(tx: Transaction, run_id: str, key: str, message: int | None) -> None:
    """End a wait, with the message it took."""
    tx.execute("DELETE FROM waits WHERE run_id = ? AND key = ?", (run_id, key))
    tx.execute("DELETE FROM inbox WHERE run_id = ? AND key = ?", (run_id, key))
    if message is not None:
        tx.execute("INSERT OR IGNORE INTO receipts VALUES (?, ?)", (run_id, message))


def send(
    tx: Transaction, name: str, payload: bytes, event_id: str, run_id: str | None, at: float
) -> bool:
    """Keep a message and offer it to the open waits it fits; False if its id was seen before."""
    if tx.execute("SELECT 1 FROM messages WHERE event_id = ?", (event_id,)).fetchone():
        return False
    insert = "INSERT INTO messages (event_id, name, run_id, payload, at) VALUES (?, ?, ?, ?, ?)"
    message = tx.execute(insert, (event_id, name, run_id, payload, at)).lastrowid
    body = json.loads(payload)
    lanes = ["", *(_pair(field, value) for field, value in _scalars(body))]
    for lane in dict.fromkeys(lanes):
        query = "SELECT run_id, key, match FROM waits WHERE name = ? AND lane = ?"
        for waiting, key, match in tx.execute(query, (name, lane)).fetchall():
            if run_id in (None, waiting) and fits(json.loads(match), body):
                _post(tx, waiting, "event", key, message=message, at=at)
    return True


def tell_waiting(tx: Transaction, run_id: str) -> None:
    """Leave mail for the runs that wait for this one's end."""
    query = "SELECT run_id, key FROM waits WHERE name = ?"
    for waiting, key in tx.execute(query, (END_OF + run_id,)).fetchall():
        _post(tx, waiting, "ended", key, ref=run_id)


def request(tx: Transaction, run_id: str, kind: str, at: float) -> None:
    """Leave a request for the run's owner."""
    _post(tx, run_id, kind, "", at=at)


def withdraw_requests(tx: Transaction, run_id: str, *kinds: str) -> None:
    """Remove requests that were carried out, or that another has made pointless."""
    for kind in kinds:
        tx.execute("DELETE FROM inbox WHERE run_id = ? AND kind = ?", (run_id, kind))


def _post(
    tx: Transaction,
    run_id: str,
    kind: str,
    key: str,
    *,
    message: int | None = None,
    ref: str | None = None,
    at: float = 0.0,
) -> None:
    tx.execute(INSERT_MAIL, (run_id, kind, key, message, ref))
    if tx.execute(WAKE, (at, run_id)).rowcount:
        tx.due = True
    tx.mail.add(run_id)


def mail(connection: sqlite3.Connection, worker_id: str) -> list[Mail]:
    """What lies in the inboxes of the runs a worker owns, oldest first."""
    found: list[Mail] = []
    for mail_id, run_id, kind, key, ref, *m in connection.execute(MAIL_OF_WORKER, (worker_id,)):
        message = Message(*m) if m[0] is not None else None
        ended, damaged = _end_of(connection, ref) if ref is not None else (None, None)
        found.append(Mail(mail_id, run_id, kind, key, message, ended, damaged))
    return found


def _end_of(
    connection: sqlite3.Connection, run_id: str
) -> tuple[Event | None, CorruptEvent | None]:
    """How a run has ended; nothing if it has been retried since. Damage concerns one reader."""
    try:
        last = events.last_event(connection, run_id)
    except CorruptEvent as damaged:
        return None, damaged
    return (last if last.type in RUN_ENDS else None), None


def drop_mail(tx: Transaction, ids: Sequence[int]) -> None:
    """Remove mail that was looked at and is not wanted."""
    for mail_id in ids:
        tx.execute("DELETE FROM inbox WHERE id = ?", (mail_id,))


def fits(match: dict[str, Any], payload: Any) -> bool:
    """Whether every field of the match (dots go deeper) has its value in the payload."""
    return all(_field(payload, name) == (True, value) for name, value in match.items())


def _field(payload: Any, name: str) -> tuple[bool, Any]:
    for part in name.split("."):
        if not isinstance(payload, dict) or part not in payload:
            return False, None
        payload = payload[part]  # pyright: ignore[reportUnknownVariableType]
    return True, payload  # pyright: ignore[reportUnknownVariableType]


def _lane(match: dict[str, Any]) -> str:
    for field in sorted(match):
        if not isinstance(match[field], dict | list | float):
            return _pair(field, match[field])
    return ""


def _pair(field: str, value: Any) -> str:
    return f"{field}={json.dumps(value)}"


def _scalars(payload: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(payload, dict):
        return
    for name, value in payload.items():  # pyright: ignore[reportUnknownVariableType]
        field = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _scalars(value, f"{field}.")
        elif not isinstance(value, list | float):
            yield field, value
