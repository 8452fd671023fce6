"""A run's journal without its payloads, and payloads a piece at a time.

A run may have tens of thousands of events and results of many megabytes: a page needs their
order, names, times and sizes, and what is in a payload only where somebody looks.
"""

from __future__ import annotations

import json
from typing import Any, cast

from holdfast.store.connection import Connection
from holdfast.store.inspection import JournalRow, Payload

LOOKED_INTO = 1_000_000
"""Payloads up to this size, in bytes, are looked into for `attempt`, `passed` and `summary`."""

ROWS = """
SELECT e.seq, e.type, e.key, e.at, e.meta, coalesce(length(e.value), length(b.data), 0), e.log,
  CASE WHEN e.type IN ('step.started', 'step.completed')
    AND coalesce(length(e.value), length(b.data), 0) BETWEEN 10 AND ?
    AND (instr(coalesce(e.value, b.data), x'22617474656D707422') > 0
      OR instr(coalesce(e.value, b.data), x'2270617373656422') > 0)
  THEN coalesce(e.value, b.data) END
FROM events e LEFT JOIN blobs b ON b.run_id = e.run_id AND b.hash = e.blob
WHERE e.run_id = ? AND e.seq > ? ORDER BY e.seq LIMIT ?
"""
PAYLOAD = """
SELECT substr(coalesce(e.value, b.data), ? + 1, ?), coalesce(length(e.value), length(b.data), 0)
FROM events e LEFT JOIN blobs b ON b.run_id = e.run_id AND b.hash = e.blob
WHERE e.run_id = ? AND e.seq = ?
"""
LENGTH = "SELECT max(seq) FROM events WHERE run_id = ?"


def rows(connection: Connection, run_id: str, after: int = 0, limit: int = -1) -> list[JournalRow]:
    """A run's events in order, from behind one on."""
    found = connection.execute(ROWS, (LOOKED_INTO, run_id, after, limit))
    return [_row(*row) for row in found]


def _row(
    seq: int, type: str, key: str, at: float, meta: str, size: int, log: int, body: bytes | None
) -> JournalRow:
    facts = read_object(meta)
    if body is None:
        return JournalRow(seq, type, key, at, facts, size, log)
    inside = read_object(body)
    round, passed, summary = inside.get("attempt"), inside.get("passed"), inside.get("summary")
    return JournalRow(
        seq,
        type,
        key,
        at,
        facts,
        size,
        log,
        round if type == "step.started" and isinstance(round, int) else None,
        passed if type == "step.completed" and isinstance(passed, bool) else None,
        summary[:200] if isinstance(summary, str) else "",
    )


def read_object(text: str | bytes) -> dict[str, Any]:
    """A JSON object; what is damaged or something else reads as an empty one."""
    try:
        found: Any = json.loads(text)
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def length(connection: Connection, run_id: str) -> int:
    """The place of a run's last event."""
    return int(connection.execute(LENGTH, (run_id,)).fetchone()[0] or 0)


def payload(
    connection: Connection, run_id: str, seq: int, start: int, limit: int
) -> Payload | None:
    """Up to `limit` bytes of an event's payload; None if there is no such event."""
    row = connection.execute(PAYLOAD, (start, limit, run_id, seq)).fetchone()
    if row is None:
        return None
    data = row[0] or b""
    return Payload(data if isinstance(data, bytes) else str(data).encode(), int(row[1]), start)
