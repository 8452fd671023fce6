"""What a run's steps did elsewhere, with models and in sandboxes: a page at a time, and its sums.

Pages are in the order things began. `after` is the id that the last page ended with; an id that is
none of the run's is refused. What was said in calls is not read.
"""

from __future__ import annotations

from typing import Any, TypeVar

from holdfast.errors import UsageError
from holdfast.records.sandboxes import CommandRecord, SandboxRecord
from holdfast.store.connection import Connection
from holdfast.store.inspection import Activity, ActivityPage, CallRow, Sums
from holdfast.store.sqlite import call_views as calls_in
from holdfast.store.sqlite import ledger_rows, sandbox_rows

T = TypeVar("T")

CALLS = """
SELECT id FROM calls WHERE run_id = ? AND (started_at, id) > (?, ?)
ORDER BY started_at, id LIMIT ?
"""
SANDBOXES = """
SELECT id FROM sandboxes WHERE run_id = ? AND (created_at, id) > (?, ?)
ORDER BY created_at, id LIMIT ?
"""
COMMANDS = """
SELECT id FROM commands WHERE run_id = ? AND (started_at, id) > (?, ?)
ORDER BY started_at, id LIMIT ?
"""
CALL_AT = "SELECT started_at FROM calls WHERE run_id = ? AND id = ?"
SANDBOX_AT = "SELECT created_at FROM sandboxes WHERE run_id = ? AND id = ?"
COMMAND_AT = "SELECT started_at FROM commands WHERE run_id = ? AND id = ?"
SANDBOXES_OF = "SELECT count(*) FROM sandboxes WHERE run_id = ?"
COMMANDS_OF = "SELECT count(*) FROM commands WHERE run_id = ?"


def of_run(connection: Connection, run_id: str, limit: int) -> Activity:
    """The first page of each, and the sums."""
    return Activity(
        calls(connection, run_id, None, limit),
        sandboxes(connection, run_id, None, limit),
        commands(connection, run_id, None, limit),
        sums(connection, run_id),
    )


def sums(connection: Connection, run_id: str) -> Sums:
    """What a run's calls came to, and how much else there is."""
    (sandboxes,) = connection.execute(SANDBOXES_OF, (run_id,)).fetchone()
    (commands,) = connection.execute(COMMANDS_OF, (run_id,)).fetchone()
    below, children = ledger_rows.totals_below(connection, run_id)
    return Sums(ledger_rows.totals(connection, run_id), sandboxes, commands, below, children)


def calls(
    connection: Connection, run_id: str, after: str | None, limit: int
) -> ActivityPage[CallRow]:
    """A run's model calls."""
    ids, more = _ids(connection, (CALLS, CALL_AT), run_id, after, limit)
    return ActivityPage([calls_in.row(connection, id) for id in ids], more)


def sandboxes(
    connection: Connection, run_id: str, after: str | None, limit: int
) -> ActivityPage[SandboxRecord]:
    """A run's sandboxes."""
    ids, more = _ids(connection, (SANDBOXES, SANDBOX_AT), run_id, after, limit)
    found = [sandbox_rows.sandbox(connection, id) for id in ids]
    return ActivityPage([record for record in found if record is not None], more)


def commands(
    connection: Connection, run_id: str, after: str | None, limit: int
) -> ActivityPage[CommandRecord]:
    """The commands that a run had carried out in sandboxes."""
    ids, more = _ids(connection, (COMMANDS, COMMAND_AT), run_id, after, limit)
    found = [sandbox_rows.command(connection, id) for id in ids]
    return ActivityPage([record for record in found if record is not None], more)


def _ids(
    connection: Connection,
    queries: tuple[str, str],
    run_id: str,
    after: str | None,
    limit: int,
) -> tuple[list[str], bool]:
    page, at = queries
    began: Any = -1.0
    if after is not None:
        place = connection.execute(at, (run_id, after)).fetchone()
        if place is None:
            raise UsageError(
                f"{run_id} has no {after[:100]!r} to go on from",
                hint="give `after` as the last page gave it",
            )
        began = place[0]
    rows = connection.execute(page, (run_id, began, after or "", limit + 1)).fetchall()
    return [row[0] for row in rows[:limit]], len(rows) > limit
