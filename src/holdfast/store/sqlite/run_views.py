"""Runs as the list shows them: a page at a time, found by index, with what they do now."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from holdfast.ids import new_id
from holdfast.records import COMMANDS, COMPLETIONS, STEP_CANCELLED, STEP_RETRYING, Run
from holdfast.store.connection import Connection
from holdfast.store.inspection import COUNTED, Doing, OpenVersion, RunPage, RunQuery, RunRow
from holdfast.store.sqlite import gathering, ledger_rows, queries
from holdfast.store.sqlite.queries import last_log, marks

SEARCHED = 50_000
"""Runs that one search looks at; older ones are the next page's."""
NARROW = 2000
"""A span of time with at most so many runs is found by its own index."""
LOOKED_AT = 64
"""Events of a run under way that are read to say what it does now."""

INPUT = """
SELECT substr(coalesce(e.value, b.data), 1, 2000) FROM events e
LEFT JOIN blobs b ON b.run_id = e.run_id AND b.hash = e.blob WHERE e.run_id = ? AND e.seq = 1
"""
LATEST = "SELECT type, key, at, meta FROM events WHERE run_id = ? ORDER BY seq DESC LIMIT ?"
# By status: those that have ended, which may be most, are not looked at.
OPEN_VERSIONS = """
SELECT workflow, version, status, count(*), min(created_at) FROM runs
WHERE status IN ('pending', 'queued', 'running', 'waiting', 'paused', 'stuck')
GROUP BY workflow, version, status ORDER BY workflow, version, status
"""
COUNTS = "SELECT workflow, status, runs FROM run_counts WHERE runs > 0"
NTH_BELOW = "SELECT id FROM runs WHERE id < ? ORDER BY id DESC LIMIT 1 OFFSET ?"
IN_SPAN = "SELECT count(*) FROM (SELECT 1 FROM runs WHERE created_at >= ? LIMIT ?) AS found"
FOUND_IN = """(r.id LIKE ? ESCAPE '\\' OR r.workflow LIKE ? ESCAPE '\\' OR r.key LIKE ? ESCAPE '\\'
 OR r.error LIKE ? ESCAPE '\\' OR EXISTS
 (SELECT 1 FROM attributes s WHERE s.run_id = r.id AND s.value LIKE ? ESCAPE '\\'))"""
LAST_ID = "run_~"


def run_page(
    connection: Connection,
    which: RunQuery,
    limit: int,
    below: str | None = None,
    above: str | None = None,
) -> RunPage:
    """A page of runs: the newest, or those next to an id."""
    bottom = _bottom(connection, which, below)
    ids = _ids(connection, which, limit + 1, below, above, bottom)
    more = len(ids) > limit
    ids = ids[:limit]
    if above is not None:
        ids.reverse()
    older = ids[-1] if ids and (more or above is not None) else None
    if bottom is not None and not more and above is None:
        older = bottom
    newer = ids[0] if ids and (more if above is not None else below is not None) else None
    rows = [run_row(connection, run) for run in _runs(connection, ids)]
    stopped = queries.get(connection, bottom) if bottom is not None and older == bottom else None
    return RunPage(
        rows,
        older,
        newer,
        _found(connection, which),
        None if stopped is None else stopped.created_at,
        counts(connection),
        last_log(connection),
    )


def counts(connection: Connection) -> dict[str, dict[str, int]]:
    """How many runs there are, by workflow and status."""
    found: dict[str, dict[str, int]] = {}
    for workflow, status, number in connection.execute(COUNTS):
        found.setdefault(workflow, {})[status] = number
    return found


def open_versions(connection: Connection) -> list[OpenVersion]:
    """The versions of workflows that have runs which have not ended, by name."""
    found: dict[tuple[str, str], OpenVersion] = {}
    for workflow, version, status, number, oldest in connection.execute(OPEN_VERSIONS):
        before = found.get((workflow, version))
        runs, first = ({}, oldest) if before is None else (before.runs, before.oldest)
        found[workflow, version] = OpenVersion(
            workflow, version, {**runs, status: number}, min(first, oldest)
        )
    return list(found.values())


def run_row(connection: Connection, run: Run) -> RunRow:
    """A run with what the list says of it."""
    doing = None if run.ended else doing_now(connection, run.id)
    totals = ledger_rows.totals(connection, run.id)
    waits = run.status in ("queued", "pending")
    queue = gathering.queue_place(connection, run.id) if waits else None
    return RunRow(run, run_input(connection, run.id), doing, totals, queue)


def run_input(connection: Connection, run_id: str) -> bytes:
    """The beginning of what a run was given."""
    head = connection.execute(INPUT, (run_id,)).fetchone()
    return (head and head[0]) or b""


def doing_now(connection: Connection, run_id: str) -> Doing | None:
    """What a run has begun last and not ended, as far as its latest events tell."""
    closed: set[str] = set()
    retries: dict[str, int] = {}
    for type, key, at, meta in connection.execute(LATEST, (run_id, LOOKED_AT)):
        if type in COMPLETIONS or type == STEP_CANCELLED:
            closed.add(key)
        elif type == STEP_RETRYING:
            retries.setdefault(key, json.loads(meta)["attempt"] + 1)
        elif type in COMMANDS and key not in closed and type in _TAKES_TIME:
            name = json.loads(meta).get("name", "")
            return Doing(type, name, at, retries.get(key, 1))
    return None


_TAKES_TIME = frozenset({"step.started", "timer.set", "wait.created", "child.started"})


def matching(connection: Connection, which: RunQuery, limit: int) -> list[str]:
    """Ids of the runs that fit, newest first."""
    return _ids(connection, which, limit, None, None, _bottom(connection, which, None))


def _bottom(connection: Connection, which: RunQuery, below: str | None) -> str | None:
    """The oldest run that a search looks at, if there are more."""
    if not which.search:
        return None
    row = connection.execute(NTH_BELOW, (below or LAST_ID, SEARCHED)).fetchone()
    return None if row is None else str(row[0])


def _found(connection: Connection, which: RunQuery) -> int | None:
    if which.search:
        return None
    if which.is_plain:
        kept = counts(connection)
        chosen = [kept.get(which.workflow, {})] if which.workflow else list(kept.values())
        return sum(
            number
            for by_status in chosen
            for status, number in by_status.items()
            if not which.status or status in which.status
        )
    return len(_ids(connection, which, COUNTED + 1, None, None, None))


def _ids(
    connection: Connection,
    which: RunQuery,
    limit: int,
    below: str | None,
    above: str | None,
    bottom: str | None,
) -> list[str]:
    """Ids of runs that fit, downwards (or from `above` upwards)."""
    conditions: list[str] = []
    values: list[Any] = []

    def add(condition: str, *given: Any) -> None:
        conditions.append(condition)
        values.extend(given)

    source, id = _source(connection, which), "r.id"
    if which.attributes:
        source, id = "attributes a CROSS JOIN runs r ON r.id = a.run_id", "a.run_id"
        add("a.name = ? AND a.value = ?", *which.attributes[0])
    for name, value in which.attributes[1:]:
        exists = "SELECT 1 FROM attributes o WHERE o.run_id = r.id AND o.name = ? AND o.value = ?"
        add(f"EXISTS ({exists})", name, value)
    if which.workflow is not None:
        add("r.workflow = ?", which.workflow)
    if which.status:
        add(f"r.status IN ({marks(which.status)})", *which.status)
    if which.parent is not None:
        add("r.parent_id = ?", which.parent)
    if which.top_level:
        add("r.parent_id IS NULL")
    if which.since is not None:
        add("r.created_at >= ?", which.since)
    if which.until is not None:
        # An id's own time is never after its run's, so this bounds the walk as well.
        add(f"r.created_at < ? AND {id} < ?", which.until, _first_id(which.until))
    if which.search:
        pattern = f"%{_escaped(which.search)}%"
        add(FOUND_IN, *([pattern] * 5))
    if below is not None:
        add(f"{id} < ?", below)
    if above is not None:
        add(f"{id} > ?", above)
    if bottom is not None:
        add(f"{id} >= ?", bottom)
    clause = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    order = "ASC" if above is not None else "DESC"
    # Only names from this file and question marks are put in.
    sql = f"SELECT {id} FROM {source} {clause} ORDER BY {id} {order} LIMIT ?"  # noqa: S608
    return [row[0] for row in connection.execute(sql, (*values, limit))]


def _source(connection: Connection, which: RunQuery) -> str:
    """The table, by the index that bounds the walk best."""
    if which.since is not None:
        found = connection.execute(IN_SPAN, (which.since, NARROW + 1)).fetchone()[0]
        if found <= NARROW:
            return "runs r INDEXED BY runs_by_time"
    if which.parent is not None:
        return "runs r INDEXED BY runs_by_parent"
    if which.workflow is not None and len(which.status) == 1:
        return "runs r INDEXED BY runs_by_workflow_and_status"
    if which.workflow is not None:
        return "runs r INDEXED BY runs_by_workflow"
    if len(which.status) == 1:
        return "runs r INDEXED BY runs_by_status"
    return "runs r"


def _runs(connection: Connection, ids: Sequence[str]) -> list[Run]:
    found = [queries.get(connection, id) for id in ids]
    return [run for run in found if run is not None]


def _first_id(at: float) -> str:
    """The lowest id that a run made at this time can have."""
    return new_id("run", at=max(at, 0.0), entropy=bytes(10))


def _escaped(text: str) -> str:
    """Text that LIKE takes literally."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
