"""Events, waits and mail: how a run learns of what others did.

A message is kept, and offered to every open wait it fits, now and later: to waits that open
after it was sent, too, as long as their run was there. A run takes each message at most once.
`match` is checked here; a `where` predicate is code and is checked by the run's owner.

A wait has few messages on offer at a time, the oldest it fits, and gets the next when those were
refused; where to go on is remembered. So what a wait costs does not grow with the messages that
lie there, nor with those that were taken before.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from holdfast.errors import CorruptEvent
from holdfast.records import RUN_ENDS, Event, Message
from holdfast.store.base import END_OF, Mail
from holdfast.store.connection import Connection
from holdfast.store.sqlite import events, queries
from holdfast.store.sqlite.database import Transaction

AFTER_A_REFUSAL: Final = 16
"""Messages on offer once a wait has refused one: its predicate may be looking for a rare one."""

INSERT_MESSAGE = """
INSERT INTO messages (event_id, name, run_id, payload, at) VALUES (?, ?, ?, ?, ?) RETURNING id
"""
INSERT_MAIL = "INSERT INTO inbox (run_id, kind, key, message, ref) VALUES (?, ?, ?, ?, ?)"
WAKE = """
UPDATE runs SET due_at = ? WHERE id = ? AND owner IS NULL AND status = 'waiting'
"""
OPEN = """
INSERT INTO waits (run_id, key, name, lane, match) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (run_id, key) DO UPDATE SET name = excluded.name, lane = excluded.lane,
  match = excluded.match, first_offer = NULL, last_offer = NULL
"""
CLOSE = "DELETE FROM waits WHERE run_id = ? AND key = ? RETURNING name, match, first_offer"
WAITS_OF_RUN = """
SELECT run_id, key, match,
  EXISTS (SELECT 1 FROM inbox i WHERE i.run_id = w.run_id AND i.key = w.key)
FROM waits w WHERE run_id = ? AND name = ?
"""
WAITS_OF_ANY = """
SELECT run_id, key, match,
  EXISTS (SELECT 1 FROM inbox i WHERE i.run_id = w.run_id AND i.key = w.key)
FROM waits w WHERE name = ? AND lane = ?
"""
OFFERED = """
UPDATE waits SET first_offer = coalesce(first_offer, ?), last_offer = ? WHERE run_id = ? AND key = ?
"""
BEGIN_AFTER = """
SELECT coalesce(
  (SELECT message FROM taken WHERE run_id = runs.id AND name = ? AND match = ?), first_message - 1)
FROM runs WHERE id = ?
"""
TAKEN = """
INSERT INTO taken (run_id, name, match, message) VALUES (?, ?, ?, ?)
ON CONFLICT (run_id, name, match) DO UPDATE SET message = excluded.message
"""
# Sent to one run, or to all: two places in the index.
LATER_MESSAGES = """
SELECT m.id, m.payload FROM messages m
WHERE m.name = ? AND m.run_id = ? AND m.id > ?
  AND NOT EXISTS (SELECT 1 FROM receipts WHERE run_id = ? AND message = m.id)
ORDER BY m.id
"""
LATER_MESSAGES_TO_ALL = LATER_MESSAGES.replace("m.run_id = ?", "m.run_id IS NULL")
LISTENING = "SELECT workflow, match FROM subscriptions WHERE event = ?"
REFUSE = "DELETE FROM inbox WHERE id = ? RETURNING run_id, key, kind"
OUT_OF_OFFERS = """
SELECT name, match, last_offer FROM waits w WHERE run_id = ? AND key = ?
  AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.run_id = w.run_id AND i.key = w.key)
"""
MAIL_OF_WORKER = """
SELECT i.id, i.run_id, i.kind, i.key, i.ref, m.id, m.event_id, m.name, m.run_id, m.payload, m.at
FROM runs r JOIN inbox i ON i.run_id = r.id LEFT JOIN messages m ON m.id = i.message
WHERE r.owner = ? ORDER BY i.id
"""


def open_wait_for(tx: Transaction, run_id: str, key: str, child: str) -> None:
    """Begin to wait for the end of a run that was made in this very transaction."""
    tx.execute(OPEN, (run_id, key, END_OF + child, "", "{}"))


def open_wait(tx: Transaction, run_id: str, key: str, name: str, match: dict[str, Any]) -> None:
    """Begin to wait; what fits and is already there becomes mail."""
    wanted = json.dumps(match)
    if name.startswith(END_OF):
        name = END_OF + queries.newest(tx.connection, name.removeprefix(END_OF))
    # A retried run may open a wait that its failed life left open.
    tx.execute(OPEN, (run_id, key, name, _lane(match), wanted))
    if name.startswith(END_OF):
        other = name.removeprefix(END_OF)
        # One that is not there will not end: who waits for it has to be told.
        running = "SELECT 1 FROM runs WHERE id = ? AND finished_at IS NULL"
        if tx.execute(running, (other,)).fetchone() is None:
            _post(tx, run_id, "ended", key, ref=other)
        return
    start = tx.execute(BEGIN_AFTER, (name, wanted, run_id)).fetchone()[0]
    seen = _offer(tx, run_id, key, name, match, start, 1)
    if seen is not None:
        # None of them is for a wait of this kind: the next one need not look at them again.
        tx.execute(TAKEN, (run_id, name, wanted, seen))


def _offer(
    tx: Transaction,
    run_id: str,
    key: str,
    name: str,
    match: dict[str, Any],
    after: int,
    count: int,
) -> int | None:
    """Offer a wait the next messages it fits. If there is none: the last one that was seen."""
    found: list[int] = []
    seen: int | None = None
    streams = (
        tx.execute(LATER_MESSAGES, (name, run_id, after, run_id)),
        tx.execute(LATER_MESSAGES_TO_ALL, (name, after, run_id)),
    )
    for message, payload in heapq.merge(*streams, key=_place):
        seen = message
        if fits(match, json.loads(payload)):
            found.append(message)
            if len(found) == count:
                break
    for stream in streams:
        stream.close()
    for message in found:
        _post(tx, run_id, "event", key, message=message)
    if found:
        tx.execute(OFFERED, (found[0], found[-1], run_id, key))
        return None
    return seen


def _place(row: tuple[int, bytes]) -> int:
    return row[0]


def close_wait(tx: Transaction, run_id: str, key: str, message: int | None) -> None:
    """End a wait, with the message it took."""
    closed = tx.execute(CLOSE, (run_id, key)).fetchall()
    tx.execute("DELETE FROM inbox WHERE run_id = ? AND key = ?", (run_id, key))
    if message is None:
        return
    tx.execute("INSERT INTO receipts VALUES (?, ?) ON CONFLICT DO NOTHING", (run_id, message))
    for name, match, first_offer in closed:
        if first_offer == message:  # it passed over none
            tx.execute(TAKEN, (run_id, name, match, message))


def send(
    tx: Transaction, name: str, payload: bytes, event_id: str, run_id: str | None, at: float
) -> bool:
    """Keep a message and offer it to the open waits it fits; False if its id was seen before."""
    if tx.execute("SELECT 1 FROM messages WHERE event_id = ?", (event_id,)).fetchone():
        return False
    if run_id is not None:
        run_id = queries.newest(tx.connection, run_id)
    (message,) = tx.execute(INSERT_MESSAGE, (event_id, name, run_id, payload, at)).fetchone()
    body = json.loads(payload)
    for waiting, key, match, has_offers in _waits_for(tx, name, run_id, body):
        # One that has others on offer comes to this one when it has refused those.
        if not has_offers and fits(json.loads(match), body):
            _post(tx, waiting, "event", key, message=message, at=at)
            tx.execute(OFFERED, (message, message, waiting, key))
    if run_id is None:
        _tell_workflows(tx, name, message, body)
    return True


def _tell_workflows(tx: Transaction, name: str, message: int | None, body: Any) -> None:
    """Leave a message for the workflows that listen to it: it starts a run, or cancels one."""
    for workflow, match in tx.execute(LISTENING, (name,)).fetchall():
        if fits(json.loads(match), body):
            tx.execute("INSERT INTO subscription_news VALUES (?, ?)", (workflow, message))
            tx.due = True


def _waits_for(
    tx: Transaction, name: str, run_id: str | None, body: Any
) -> list[tuple[str, str, str, int]]:
    """The open waits that a message may fit."""
    if run_id is not None:
        return tx.execute(WAITS_OF_RUN, (run_id, name)).fetchall()
    lanes = dict.fromkeys(["", *(_pair(field, value) for field, value in _scalars(body))])
    found: list[tuple[str, str, str, int]] = []
    for lane in lanes:
        found += tx.execute(WAITS_OF_ANY, (name, lane)).fetchall()
    return found


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


def mail(connection: Connection, worker_id: str) -> list[Mail]:
    """What lies in the inboxes of the runs a worker owns, oldest first."""
    found: list[Mail] = []
    for mail_id, run_id, kind, key, ref, *m in connection.execute(MAIL_OF_WORKER, (worker_id,)):
        message = Message(*m) if m[0] is not None else None
        ended, damaged = _end_of(connection, ref) if ref is not None else (None, None)
        found.append(Mail(mail_id, run_id, kind, key, message, ended, damaged))
    return found


def _end_of(connection: Connection, run_id: str) -> tuple[Event | None, CorruptEvent | None]:
    """How a run has ended; nothing if it has been retried since. Damage concerns one reader."""
    if connection.execute("SELECT 1 FROM runs WHERE id = ?", (run_id,)).fetchone() is None:
        return None, CorruptEvent(
            f"{run_id} is not there, or was deleted: its end can't be waited for",
            hint="fork the run from before that wait, or cancel it",
        )
    try:
        last = events.last_event(connection, run_id)
    except CorruptEvent as damaged:
        return None, damaged
    return (last if last.type in RUN_ENDS else None), None


def drop_mail(tx: Transaction, ids: Sequence[int]) -> None:
    """Remove mail that was looked at and is not wanted; offer waits what comes next for them."""
    refused: dict[tuple[str, str], None] = {}
    for mail_id in ids:
        for run_id, key, kind in tx.execute(REFUSE, (mail_id,)).fetchall():
            if kind == "event":
                refused[run_id, key] = None
    for run_id, key in refused:
        for name, match, last_offer in tx.execute(OUT_OF_OFFERS, (run_id, key)).fetchall():
            wanted = json.loads(match)
            _offer(tx, run_id, key, name, wanted, last_offer or 0, AFTER_A_REFUSAL)


# --- matching ---


def fits(match: dict[str, Any], payload: Any) -> bool:
    """Whether every field of the match has its value in the payload.

    A dot in a field's name goes deeper, or is part of the name. Values are the same if they are
    the same JSON: `5` and `5.0` are one number, `true` and `1` are not.
    """
    return all(
        any(_text(found) == _text(value) for found in _values(payload, field))
        for field, value in match.items()
    )


def _values(payload: Any, field: str) -> Iterator[Any]:
    """What the payload has under a name, whichever of its dots go deeper."""
    if not isinstance(payload, dict):
        return
    fields = cast("dict[str, Any]", payload)
    if field in fields:
        yield fields[field]
    place = field.find(".")
    while place >= 0:
        if field[:place] in fields:
            yield from _values(fields[field[:place]], field[place + 1 :])
        place = field.find(".", place + 1)


def _text(value: Any) -> str:
    """A value as text that is the same for the same value, and for no other."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        inside = (f"{json.dumps(name)}:{_text(fields[name])}" for name in sorted(fields))
        return f"{{{','.join(inside)}}}"
    if isinstance(value, list):
        return f"[{','.join(_text(each) for each in cast('list[Any]', value))}]"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)


def _lane(match: dict[str, Any]) -> str:
    """A field of the match that a message must have, as text; "" if it has none to look up."""
    for field in sorted(match):
        if not isinstance(match[field], dict | list):
            return _pair(field, match[field])
    return ""


def _pair(field: str, value: Any) -> str:
    return f"{field}={_text(value)}"


def _scalars(payload: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every plain value in the payload, under the names that `_values` finds it by."""
    if not isinstance(payload, dict):
        return
    for name, value in cast("dict[str, Any]", payload).items():
        field = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _scalars(value, f"{field}.")
        elif not isinstance(value, list):
            yield field, value
