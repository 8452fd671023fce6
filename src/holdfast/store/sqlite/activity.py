"""What a run's steps did elsewhere, with models and in sandboxes: a page at a time, and its sums.

Pages are in the order things began. `after` is the id that the last page ended with; an id that is
none of the run's is refused. What was said in calls is not read.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from holdfast.errors import UsageError
from holdfast.records.sandboxes import CommandRecord, SandboxRecord
from holdfast.store.sqlite import call_views as calls_in
from holdfast.store.sqlite import sandbox_rows
from holdfast.store.sqlite.call_views import CallRow

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
SUMS = """
SELECT count(*), coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0),
  coalesce(sum(cost), 0), coalesce(sum(cost IS NULL), 0)
FROM calls WHERE run_id = ?
"""
BY_STEP = """
SELECT coalesce(step_key, ''), count(*), coalesce(sum(input_tokens + output_tokens), 0),
  coalesce(sum(cost), 0), coalesce(sum(cost IS NULL), 0), max(model)
FROM calls WHERE run_id = ? AND status <> 'started' GROUP BY 1
"""
SANDBOXES_OF = "SELECT count(*) FROM sandboxes WHERE run_id = ?"
COMMANDS_OF = "SELECT count(*) FROM commands WHERE run_id = ?"


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page, and whether there is more behind it."""

    rows: list[T]
    more: bool


@dataclass(frozen=True, slots=True)
class Sums:
    """Of everything a run did. Money in nanodollars; a call without a price is not in it."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost: int
    unpriced: int
    sandboxes: int
    commands: int


@dataclass(frozen=True, slots=True)
class Spent:
    """What the ended model calls of a step came to: nanodollars, and calls without a price."""

    calls: int = 0
    tokens: int = 0
    cost: int = 0
    unpriced: int = 0
    model: str = ""
    """One of those that were asked."""

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.calls + other.calls,
            self.tokens + other.tokens,
            self.cost + other.cost,
            self.unpriced + other.unpriced,
            self.model or other.model,
        )


@dataclass(frozen=True, slots=True)
class Activity:
    """The beginning of what a run did, and the sums of all of it."""

    calls: Page[CallRow]
    sandboxes: Page[SandboxRecord]
    commands: Page[CommandRecord]
    sums: Sums


def of_run(connection: sqlite3.Connection, run_id: str, limit: int) -> Activity:
    """The first page of each, and the sums."""
    return Activity(
        calls(connection, run_id, None, limit),
        sandboxes(connection, run_id, None, limit),
        commands(connection, run_id, None, limit),
        sums(connection, run_id),
    )


def sums(connection: sqlite3.Connection, run_id: str) -> Sums:
    """What a run's calls came to, and how much else there is."""
    of_calls = connection.execute(SUMS, (run_id,)).fetchone()
    others = [
        connection.execute(sql, (run_id,)).fetchone()[0] for sql in (SANDBOXES_OF, COMMANDS_OF)
    ]
    return Sums(*of_calls, *others)


def spent_by_step(connection: sqlite3.Connection, run_id: str) -> dict[str, Spent]:
    """What each step of a run spent on models, however many calls it made."""
    rows = connection.execute(BY_STEP, (run_id,))
    return {key: Spent(*numbers) for key, *numbers in rows}


def calls(
    connection: sqlite3.Connection, run_id: str, after: str | None, limit: int
) -> Page[CallRow]:
    """A run's model calls."""
    ids, more = _ids(connection, (CALLS, CALL_AT), run_id, after, limit)
    return Page([calls_in.row(connection, id) for id in ids], more)


def sandboxes(
    connection: sqlite3.Connection, run_id: str, after: str | None, limit: int
) -> Page[SandboxRecord]:
    """A run's sandboxes."""
    ids, more = _ids(connection, (SANDBOXES, SANDBOX_AT), run_id, after, limit)
    found = [sandbox_rows.sandbox(connection, id) for id in ids]
    return Page([record for record in found if record is not None], more)


def commands(
    connection: sqlite3.Connection, run_id: str, after: str | None, limit: int
) -> Page[CommandRecord]:
    """The commands that a run had carried out in sandboxes."""
    ids, more = _ids(connection, (COMMANDS, COMMAND_AT), run_id, after, limit)
    found = [sandbox_rows.command(connection, id) for id in ids]
    return Page([record for record in found if record is not None], more)


def _ids(
    connection: sqlite3.Connection,
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
