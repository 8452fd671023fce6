"""Questions about runs, for lists and pages: read-only, by index, a page at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from holdfast.errors import UsageError
from holdfast.records import Chunk, Run, Worker
from holdfast.records.live import Published
from holdfast.store.base import Page, RunFilter
from holdfast.store.connection import Connection

COLUMNS = """
SELECT r.id, r.workflow, r.version, r.status, r.created_at, r.key, r.parent_id, r.forked_from,
  r.started_at, r.finished_at, r.due_at, r.owner, r.error,
  r.continued_from, r.continued_as, r.timeout, r.deadline
FROM runs r
"""
GET = COLUMNS + "WHERE r.id = ?"
GET_MANY = COLUMNS + "WHERE r.id IN (SELECT value FROM json_each(?))"  # noqa: S608
ATTRIBUTES_OF_MANY = """
SELECT run_id, name, value FROM attributes WHERE run_id IN (SELECT value FROM json_each(?))
"""
ATTRIBUTES = "SELECT name, value FROM attributes WHERE run_id = ?"
NEWEST = """
SELECT newest.id FROM runs old JOIN runs newest ON newest.chain = old.chain
WHERE old.id = ? AND old.continued_as IS NOT NULL AND newest.continued_as IS NULL
"""
WORKERS = """
SELECT w.id, w.pid, w.host, w.started_at, w.expires_at,
  (SELECT count(*) FROM runs WHERE owner = w.id)
FROM workers w ORDER BY w.started_at
"""
SEARCHED = 20_000
"""So many runs are searched for a text at a time: it is no look-up, and others wait to read."""
WINDOW = "SELECT id FROM runs WHERE id < ? ORDER BY id DESC LIMIT 1 OFFSET ?"
WITH_TEXT = """
(r.id || ' ' || r.workflow || ' ' || coalesce(r.key, '') || ' ' || coalesce(r.error, '')
    LIKE ? ESCAPE '!'
  OR EXISTS (SELECT 1 FROM attributes a WHERE a.run_id = r.id
    AND a.name || '=' || a.value LIKE ? ESCAPE '!'))
"""
PUBLISHED = "SELECT name, value, at FROM published WHERE run_id = ? ORDER BY name"
CHUNKS = """
SELECT idx, data, at, step, attempt FROM chunks
WHERE run_id = ? AND stream = ? AND idx >= ? ORDER BY idx LIMIT ?
"""

LAST_LOG = "SELECT coalesce(max(log), 0) FROM events"


def get(connection: Connection, run_id: str) -> Run | None:
    """One run, or None."""
    row = connection.execute(GET, (run_id,)).fetchone()
    return _run(connection, row) if row is not None else None


def get_many(connection: Connection, ids: Sequence[str]) -> dict[str, Run]:
    """Runs by their ids: those that are there."""
    wanted = (json.dumps(list(ids)),)
    found: dict[str, list[tuple[str, str]]] = {run_id: [] for run_id in ids}
    for run_id, name, value in connection.execute(ATTRIBUTES_OF_MANY, wanted):
        found[run_id].append((name, value))
    rows = connection.execute(GET_MANY, wanted)
    return {row[0]: _run_of(row, found[row[0]]) for row in rows}


def _run(connection: Connection, row: tuple[Any, ...]) -> Run:
    return _run_of(row, connection.execute(ATTRIBUTES, (row[0],)).fetchall())


def _run_of(row: tuple[Any, ...], found: list[tuple[str, str]]) -> Run:
    *fields, continued_from, continued_as, timeout, deadline = row
    return Run(
        *fields,
        attributes={name: json.loads(value) for name, value in found},
        continued_from=continued_from,
        continued_as=continued_as,
        timeout=timeout,
        deadline=deadline,
    )


def newest(connection: Connection, run_id: str) -> str:
    """The run that this one has gone on as by now; itself, if it has not."""
    found = connection.execute(NEWEST, (run_id,)).fetchone()
    return run_id if found is None else str(found[0])


def list_runs(connection: Connection, where: RunFilter, limit: int, cursor: str | None) -> Page:
    """A page of runs, newest first (ids sort by time); `cursor` is where the last one ended."""
    if not 1 <= limit <= 1000:
        raise UsageError(f"a page of {limit} runs is not possible", hint="ask for 1 to 1000")
    conditions: list[str] = []
    parameters: list[Any] = []

    def add(condition: str, *values: Any) -> None:
        conditions.append(condition)
        parameters.extend(values)

    if where.workflow is not None:
        add("r.workflow = ?", where.workflow)
    if where.status:
        add(f"r.status IN ({','.join('?' * len(where.status))})", *where.status)
    if where.parent_id is not None:
        add("r.parent_id = ?", where.parent_id)
    if where.top_level:
        add("r.parent_id IS NULL")
    if where.created_after is not None:
        add("r.created_at >= ?", where.created_after)
    if where.created_before is not None:
        add("r.created_at < ?", where.created_before)
    for name, value in where.attributes.items():
        text = json.dumps(value, ensure_ascii=False)
        exists = "SELECT 1 FROM attributes a WHERE a.run_id = r.id AND a.name = ? AND a.value = ?"
        add(f"EXISTS ({exists})", name, text)
    if cursor is not None:
        add("r.id < ?", cursor)
    window = None
    if where.text:
        pattern = f"%{_literally(where.text)}%"
        add(WITH_TEXT, pattern, pattern)
        # "s" sorts behind every id ("run_…").
        window = connection.execute(WINDOW, (cursor or "s", SEARCHED - 1)).fetchone()
        if window is not None:
            add("r.id >= ?", window[0])
    clause = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    sql = f"{COLUMNS}{clause}ORDER BY r.id DESC LIMIT ?"
    rows = connection.execute(sql, (*parameters, limit + 1)).fetchall()
    runs = [_run(connection, row) for row in rows[:limit]]
    if len(rows) > limit:
        return Page(runs, runs[-1].id)
    return Page(runs, window[0] if window is not None else None)


def _literally(text: str) -> str:
    """Text for LIKE in which nothing has a special meaning."""
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def workers(connection: Connection) -> list[Worker]:
    """Every worker that has a lease, and how many runs it holds."""
    return [Worker(*row) for row in connection.execute(WORKERS)]


def published(connection: Connection, run_id: str) -> list[Published]:
    """The last value of each name that a run has published, by name."""
    return [Published(*row) for row in connection.execute(PUBLISHED, (run_id,))]


def chunks(connection: Connection, run_id: str, stream: str, start: int, limit: int) -> list[Chunk]:
    """Pieces of a stream, from an index on."""
    rows = connection.execute(CHUNKS, (run_id, stream, start, limit))
    return [Chunk(*row) for row in rows]


def last_log(connection: Connection) -> int:
    """Where the log of all runs ends: live views go on from there."""
    return int(connection.execute(LAST_LOG).fetchone()[0])


def marks(values: Any) -> str:
    """As many question marks as there are values."""
    return ",".join("?" * len(values))
