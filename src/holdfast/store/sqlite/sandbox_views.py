"""Sandboxes for the pages: in the list with what they did, and those of a run's steps."""

from __future__ import annotations

from holdfast.records.sandboxes import (
    MEANT_TO_FAIL,
    EgressRecord,
    SandboxRecord,
)
from holdfast.store.connection import Connection
from holdfast.store.inspection import SandboxDetail, SandboxList, SandboxRow, StepWork
from holdfast.store.sandboxes import SandboxFilter
from holdfast.store.sqlite import sandbox_rows
from holdfast.store.sqlite.queries import last_log

DONE = """
SELECT count(*), coalesce(sum(stdout_bytes + stderr_bytes), 0),
  count(*) FILTER (WHERE ended IS NOT NULL AND
    (ended <> 'exited' OR exit_code <> 0) <> (instr(argv, ?) > 0)),
  sum(cpu_seconds), max(peak_memory)
FROM commands INDEXED BY commands_by_sandbox WHERE sandbox_id = ?
"""
REACHED = """
SELECT count(*), count(*) FILTER (WHERE allowed = 0) FROM egress INDEXED BY egress_by_sandbox
WHERE sandbox_id = ?
"""
LIVE = "SELECT count(*) FROM sandboxes WHERE stopped_at IS NULL"
SHOWN = 200
"""Commands of a run, and attempts to reach the network, that are read."""


def sandbox_list(
    connection: Connection, live: bool | None, limit: int, below: str | None
) -> SandboxList:
    """A page of sandboxes, newest first."""
    page = sandbox_rows.sandboxes(connection, SandboxFilter(live=live), limit, below)
    number = int(connection.execute(LIVE).fetchone()[0])
    rows = [_row(connection, record) for record in page.sandboxes]
    return SandboxList(rows, page.cursor, number, last_log(connection))


def _row(connection: Connection, record: SandboxRecord) -> SandboxRow:
    commands, written, failed, cpu, peak = connection.execute(
        DONE, (f"/{MEANT_TO_FAIL}.", record.id)
    ).fetchone()
    reached, refused = connection.execute(REACHED, (record.id,)).fetchone()
    cpu = cpu if record.cpu_seconds is None else record.cpu_seconds
    peak = peak if record.peak_memory is None else record.peak_memory
    return SandboxRow(record, commands, failed, written, reached, refused, cpu, peak)


def sandbox_detail(
    connection: Connection, id: str, limit: int, command: str | None, egress: int | None
) -> SandboxDetail | None:
    """One sandbox, or None."""
    record = sandbox_rows.sandbox(connection, id)
    if record is None:
        return None
    commands = sandbox_rows.commands(connection, id, None, None, limit, command)
    attempts = sandbox_rows.egress(connection, id, None, limit, egress)
    return SandboxDetail(
        _row(connection, record),
        commands.commands,
        commands.cursor,
        attempts.attempts,
        attempts.cursor,
        last_log(connection),
    )


def of_step(connection: Connection, run_id: str, step_key: str) -> StepWork:
    """The commands of one step, the sandboxes they ran in, and what those were refused."""
    found = sandbox_rows.commands(connection, None, run_id, step_key, SHOWN, None).commands
    made = sandbox_rows.sandboxes(connection, SandboxFilter(run_id=run_id), SHOWN, None).sandboxes
    used = {command.sandbox_id for command in found}
    own = [record for record in made if record.step_key == step_key or record.id in used]
    refused: list[EgressRecord] = []
    for record in own:
        page = sandbox_rows.egress(connection, record.id, None, SHOWN, None)
        refused += [attempt for attempt in page.attempts if not attempt.allowed]
    return StepWork(found, own, refused)
