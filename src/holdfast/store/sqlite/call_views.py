"""Model calls for the pages: without what was said, and summed up by model and over time."""

from __future__ import annotations

import json
from typing import Any

from holdfast.records.calls import Call, Spend, SpendLimit
from holdfast.store.connection import Connection
from holdfast.store.inspection import CallFilter, CallPage, CallRow, Slice, Sum
from holdfast.store.ledger import CallTotals
from holdfast.store.sqlite import ledger_rows
from holdfast.store.sqlite.ledger_rows import TOTALS
from holdfast.store.sqlite.queries import last_log

COLUMNS = """
SELECT id, status, model, provider, served, run_id, workflow, step, step_key, attempt, started_at,
  finished_at, input_tokens, cached_tokens, output_tokens, reasoning_tokens, estimated, cost,
  latency, first_token, attempts, error, message, finish, tags
FROM calls
"""
BY_ID = COLUMNS + "WHERE id = ?"
OF_RUN = COLUMNS + "WHERE run_id = ? ORDER BY started_at, id LIMIT ?"
# Latencies are told apart by 10 ms below a second, by 100 ms above: enough for p50 and p95.
SUMS = f"""
SELECT model, coalesce(provider, ''), status,
  CASE WHEN latency < 1 THEN CAST(latency * 100 AS INTEGER) / 100.0
       ELSE CAST(latency * 10 AS INTEGER) / 10.0 END, {TOTALS}
FROM calls INDEXED BY calls_summed WHERE started_at >= ? GROUP BY 1, 2, 3, 4
"""  # noqa: S608
OVER_TIME = f"""
SELECT CAST((started_at - ?) / ? AS INTEGER), model, {TOTALS}
FROM calls INDEXED BY calls_summed WHERE started_at >= ? GROUP BY 1, 2
"""  # noqa: S608
FIRST = "SELECT min(started_at) FROM calls"
LIMITED = """
SELECT l.scope, coalesce(s.usd, 0), coalesce(s.tokens, 0), coalesce(s.calls, 0),
  coalesce(s.held_usd, 0), coalesce(s.held_tokens, 0), l.usd, l.tokens
FROM spend_limits l LEFT JOIN spend s ON s.scope = l.scope ORDER BY l.scope LIMIT ?
"""
SPENT = "SELECT scope, usd, tokens, calls, held_usd, held_tokens FROM spend WHERE scope = ?"
SPENT_LIKE = """
SELECT scope, usd, tokens, calls, held_usd, held_tokens FROM spend
WHERE scope >= ? AND scope < ? ORDER BY usd DESC LIMIT ?
"""


def of_run(connection: Connection, run_id: str, limit: int = 20_000) -> list[CallRow]:
    """The calls of a run, in order."""
    return [_row(row) for row in connection.execute(OF_RUN, (run_id, limit))]


def row(connection: Connection, id: str) -> CallRow:
    """One call that is on record."""
    return _row(connection.execute(BY_ID, (id,)).fetchone())


def _row(row: tuple[Any, ...]) -> CallRow:
    fields = list(row)
    fields[16] = bool(fields[16])
    fields[20], fields[24] = json.loads(fields[20]), json.loads(fields[24])
    return CallRow(*fields)


def call_page(
    connection: Connection, which: CallFilter, limit: int, before: float | None
) -> CallPage:
    """A page of calls, latest first."""
    conditions: list[str] = []
    values: list[Any] = []
    for column, value in (
        ("model", which.model),
        ("provider", which.provider),
        ("status", which.status),
        ("run_id", which.run_id),
    ):
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(value)
    if which.since is not None:
        conditions.append("started_at >= ?")
        values.append(which.since)
    if before is not None:
        conditions.append("started_at < ?")
        values.append(before)
    clause = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    sql = f"{COLUMNS}{clause}ORDER BY started_at DESC LIMIT ?"
    rows = [_row(row) for row in connection.execute(sql, (*values, limit + 1))]
    older = rows[limit - 1].started_at if len(rows) > limit else None
    return CallPage(rows[:limit], older, last_log(connection))


def call(connection: Connection, call_id: str) -> Call | None:
    """One call with what was said, as far as that is kept."""
    return ledger_rows.by_id(connection, call_id)


def sums(connection: Connection, since: float) -> list[Sum]:
    """Calls since a moment, summed up."""
    rows = connection.execute(SUMS, (since,))
    return [Sum(*row[:4], totals=CallTotals(*row[4:])) for row in rows]


def over_time(connection: Connection, since: float, width: float) -> list[Slice]:
    """What each model cost in each slice of `width` seconds since a moment."""
    rows = connection.execute(OVER_TIME, (since, width, since))
    return [Slice(*row[:2], totals=CallTotals(*row[2:])) for row in rows]


def first_call(connection: Connection) -> float | None:
    """When the first call on record was made."""
    return connection.execute(FIRST).fetchone()[0]


def limited(connection: Connection, limit: int = 200) -> list[Spend]:
    """Every scope with a limit in the store, and what it has spent."""
    return [
        Spend(*row[:6], limit=SpendLimit(row[0], row[6], row[7]))
        for row in connection.execute(LIMITED, (limit,))
    ]


def spent(connection: Connection, scope: str) -> Spend:
    """What one scope has spent."""
    row = connection.execute(SPENT, (scope,)).fetchone()
    return Spend(scope) if row is None else Spend(*row)


def spent_most(connection: Connection, kind: str, limit: int) -> list[Spend]:
    """The scopes of a kind (`run`, `tag`, …) that have spent most."""
    # ";" follows ":" in ASCII.
    rows = connection.execute(SPENT_LIKE, (f"{kind}:", f"{kind};", limit))
    return [Spend(*row) for row in rows]
