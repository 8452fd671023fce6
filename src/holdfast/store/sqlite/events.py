"""Event rows: how a journal's events are written, hashed and read back.

A row that does not fit its hash, or is missing from its run, is refused by name; the other runs
are not affected.
"""

from __future__ import annotations

import hashlib
import sqlite3

from holdfast.errors import CorruptEvent, NotFound
from holdfast.records import RUN_ENDS, Event
from holdfast.store.connection import Connection
from holdfast.store.sqlite.database import EventRow, Transaction

INLINE_BYTES = 32 * 1024
"""Larger payloads go to the blob table, so that scans of the journal stay small."""

RESTORE = "restore the store from a backup; other runs are not affected"

SELECT_EVENTS = """
SELECT e.run_id, e.seq, e.type, e.key, e.at, e.meta, coalesce(e.value, b.data), e.log, e.hash
FROM events e LEFT JOIN blobs b ON b.run_id = e.run_id AND b.hash = e.blob
"""
OF_RUN = SELECT_EVENTS + "WHERE e.run_id = ? AND e.seq > ? ORDER BY e.seq LIMIT ?"
LAST_OF_RUN = SELECT_EVENTS + "WHERE e.run_id = ? ORDER BY e.seq DESC LIMIT 1"
KNOWN_LENGTH = "SELECT max(claim_seq, 1) FROM runs WHERE id = ?"
FINISHED = "SELECT finished_at IS NOT NULL FROM runs WHERE id = ?"
OF_ALL_RUNS = SELECT_EVENTS + "WHERE e.log > ? ORDER BY e.log LIMIT ?"
OF_RUN_IN_LOG = SELECT_EVENTS + "WHERE e.run_id = ? AND e.log > ? ORDER BY e.seq LIMIT ?"
LOG_END = "SELECT coalesce(max(log), 0) FROM events"


def event_hash(event: Event) -> bytes:
    """The fingerprint of everything an event row says."""
    run_id, seq, type, key, at, meta, value, _ = event
    head = f"{run_id}\n{seq}\n{type}\n{key}\n{at!r}\n{meta}\n"
    return hashlib.blake2b(head.encode() + (value or b"\0"), digest_size=16).digest()


def row(tx: Transaction, event: Event) -> EventRow:
    run_id, seq, type, key, at, meta, value, _ = event
    blob = None
    if value is not None and len(value) > INLINE_BYTES:
        blob = keep_blob(tx, run_id, value)
        value = None
    return (run_id, seq, type, key, at, meta, value, blob, event_hash(event))


def keep_blob(tx: Transaction, run_id: str, data: bytes) -> str:
    """Put bytes beside the journal of a run; the name of what was put."""
    name = _blob_name(data)
    tx.execute("INSERT INTO blobs VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (run_id, name, data))
    return name


def blob(connection: Connection, run_id: str, name: str) -> bytes:
    """What was put beside the journal of a run, checked against its name."""
    query = "SELECT data FROM blobs WHERE run_id = ? AND hash = ?"
    found = connection.execute(query, (run_id, name)).fetchone()
    if found is None:
        raise NotFound(f"there is no payload {name} of {run_id}")
    data = bytes(found[0])
    if _blob_name(data) != name:
        raise CorruptEvent(f"payload {name} of {run_id} is damaged", hint=RESTORE)
    return data


def _blob_name(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def read(connection: Connection, sql: str, parameters: tuple[str | int, ...]) -> list[Event]:
    """Events by one of the queries above, each checked against its hash."""
    try:
        return _read(connection, sql, parameters)
    except sqlite3.OperationalError as error:
        if "decode" not in str(error):
            raise
    # Some text is no text any more. Read it as far as it can be, to find out whose it is.
    assert isinstance(connection, sqlite3.Connection), connection
    usual = connection.text_factory
    connection.text_factory = _as_far_as_possible
    try:
        return _read(connection, sql, parameters)
    finally:
        connection.text_factory = usual


def _as_far_as_possible(data: bytes) -> str:
    return data.decode(errors="replace")


def _read(connection: Connection, sql: str, parameters: tuple[str | int, ...]) -> list[Event]:
    events: list[Event] = []
    for *fields, digest in connection.execute(sql, parameters):
        event = Event(*fields)
        if not _fits(event, digest):
            raise CorruptEvent(
                f"event {event.seq} of {event.run_id} (row {event.log}) is damaged: "
                "it does not fit its hash",
                hint=RESTORE,
            )
        events.append(event)
    return events


def _fits(event: Event, digest: object) -> bool:
    try:
        return event_hash(event) == digest
    except TypeError:  # a payload that is no bytes
        return False


def load(connection: Connection, run_id: str) -> list[Event]:
    """A run's whole journal, with no row missing or damaged."""
    events = read(connection, OF_RUN, (run_id, 0, -1))
    known = connection.execute(KNOWN_LENGTH, (run_id,)).fetchone()
    expected = max(len(events), known[0] if known is not None else 0)
    for place in range(1, expected + 1):
        if place > len(events) or events[place - 1].seq != place:
            raise CorruptEvent(f"event {place} of {run_id} is missing", hint=RESTORE)
    return events


def last_event(connection: Connection, run_id: str) -> Event:
    """The newest event of a run; if the run has ended, the one that says how."""
    found = read(connection, LAST_OF_RUN, (run_id,))
    if found and found[0].type in RUN_ENDS:
        return found[0]
    finished = connection.execute(FINISHED, (run_id,)).fetchone()
    if finished is None:
        raise NotFound(f"there is no run {run_id}")
    if finished[0] or not found:
        raise CorruptEvent(f"the last event of {run_id} is missing", hint=RESTORE)
    return found[0]
