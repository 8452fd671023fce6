"""The rows of sandboxes: SQL in, records out. Runs inside somebody else's transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from holdfast.errors import UsageError
from holdfast.records.sandboxes import PROCESS_DIED, CommandRecord, EgressRecord, SandboxRecord
from holdfast.store.connection import Connection
from holdfast.store.sandboxes import CommandPage, EgressPage, SandboxFilter, SandboxPage

KEPT_ARGUMENTS = 64 * 1024
"""Characters of a command's arguments that are kept, all of them together."""

_SANDBOX = """
SELECT id, backend, isolation, runtime, created_at, timeout, cpus, memory, disk, pids, network,
  source, run_id, workflow, step, step_key, attempt, stopped_at, stopped_because,
  cpu_seconds, peak_memory, disk_used
FROM sandboxes
"""
_COMMAND = """
SELECT id, sandbox_id, argv, cwd, started_at, run_id, workflow, step, step_key, attempt, ended_at,
  ended, exit_code, signal, seconds, limits_hit, stdout_bytes, stderr_bytes, stdout_tail,
  stderr_tail, stdout_cut, stderr_cut, cpu_seconds, peak_memory
FROM commands
"""
_EGRESS = """
SELECT id, sandbox_id, at, host, port, allowed, reason, address, sent, received, run_id FROM egress
"""
_ADD_SANDBOX = """
INSERT INTO sandboxes (owner, id, backend, isolation, runtime, created_at, timeout, cpus, memory,
  disk, pids, network, source, run_id, workflow, step, step_key, attempt)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_STOP_SANDBOX = """
UPDATE sandboxes SET stopped_at = ?, stopped_because = ?, cpu_seconds = ?, peak_memory = ?,
  disk_used = ?
WHERE id = ?
"""
_ADD_COMMAND = """
INSERT INTO commands (owner, id, sandbox_id, argv, argv_cut, cwd, started_at, run_id, workflow,
  step, step_key, attempt)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_END_COMMAND = """
UPDATE commands SET ended_at = ?, ended = ?, exit_code = ?, signal = ?, seconds = ?,
  limits_hit = ?, stdout_bytes = ?, stderr_bytes = ?, stdout_tail = ?, stderr_tail = ?,
  stdout_cut = ?, stderr_cut = ?, cpu_seconds = ?, peak_memory = ?
WHERE id = ?
"""
_ADD_EGRESS = """
INSERT INTO egress (sandbox_id, at, host, port, allowed, reason, address, sent, received, run_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_OWNERS = """
SELECT owner FROM sandboxes WHERE stopped_at IS NULL
UNION SELECT owner FROM commands WHERE ended_at IS NULL
"""


# ------------------------------------------------------------------------------ writing


def add_sandbox(connection: Connection, owner: str, record: SandboxRecord) -> None:
    r = record
    connection.execute(
        _ADD_SANDBOX,
        (owner, r.id, r.backend, r.isolation, r.runtime, r.created_at.timestamp(), r.timeout,
         r.cpus, r.memory, r.disk, r.pids, json.dumps(r.network), _text(r.source), r.run_id,
         r.workflow, r.step, r.step_key, r.attempt),
    )  # fmt: skip


def stop_sandbox(connection: Connection, record: SandboxRecord) -> None:
    connection.execute(
        _STOP_SANDBOX,
        (_seconds(record.stopped_at), record.stopped_because, record.cpu_seconds,
         record.peak_memory, record.disk_used, record.id),
    )  # fmt: skip


def add_command(connection: Connection, owner: str, record: CommandRecord) -> None:
    r = record
    argv, cut = bounded(r.argv)
    connection.execute(
        _ADD_COMMAND,
        (owner, r.id, r.sandbox_id, json.dumps(argv), cut, _text(r.cwd), r.started_at.timestamp(),
         r.run_id, r.workflow, r.step, r.step_key, r.attempt),
    )  # fmt: skip


def end_command(connection: Connection, record: CommandRecord) -> None:
    r = record
    connection.execute(
        _END_COMMAND,
        (_seconds(r.ended_at), r.ended, r.exit_code, r.signal, r.seconds, json.dumps(r.limits_hit),
         r.stdout_bytes, r.stderr_bytes, r.stdout_tail, r.stderr_tail, r.stdout_cut, r.stderr_cut,
         r.cpu_seconds, r.peak_memory, r.id),
    )  # fmt: skip


def add_egress(connection: Connection, record: EgressRecord) -> None:
    r = record
    connection.execute(
        _ADD_EGRESS,
        (r.sandbox_id, r.at.timestamp(), _text(r.host), r.port, int(r.allowed), _text(r.reason),
         r.address, r.sent, r.received, r.run_id),
    )  # fmt: skip


def owners(connection: Connection) -> list[str]:
    """The processes that have something open."""
    return [row[0] for row in connection.execute(_OWNERS)]


def close_all_of(connection: Connection, owner: str, at: float) -> None:
    """The process is gone: what it had open has ended with it, found out at `at`."""
    connection.execute(
        "UPDATE sandboxes SET stopped_at = ?, stopped_because = ?"
        " WHERE owner = ? AND stopped_at IS NULL",
        (at, PROCESS_DIED, owner),
    )
    connection.execute(
        "UPDATE commands SET ended_at = ?, ended = ? WHERE owner = ? AND ended_at IS NULL",
        (at, PROCESS_DIED, owner),
    )


def bounded(argv: Sequence[str]) -> tuple[list[str], int]:
    """Arguments as they are kept: up to `KEPT_ARGUMENTS` characters, and how many were cut."""
    kept: list[str] = []
    left, cut = KEPT_ARGUMENTS, 0
    for argument in argv:
        text = _text(argument) or ""
        piece = text[:left]
        left -= len(piece)
        if len(piece) < len(text):
            cut += len(text) - len(piece)
            piece += "…"
        kept.append(piece)
    return kept, cut


# ------------------------------------------------------------------------------ reading


def sandbox(connection: Connection, id: str) -> SandboxRecord | None:
    """One sandbox, or None."""
    row = connection.execute(_SANDBOX + "WHERE id = ?", (id,)).fetchone()
    return None if row is None else _sandbox(row)


def sandboxes(
    connection: Connection, where: SandboxFilter, limit: int, cursor: str | None
) -> SandboxPage:
    """A page of sandboxes, newest first; `cursor` is where the last one ended."""
    check_limit(limit)
    conditions: list[str] = []
    parameters: list[Any] = []
    if where.run_id is not None:
        conditions.append("run_id = ?")
        parameters.append(where.run_id)
    if where.live is not None:
        conditions.append("stopped_at IS NULL" if where.live else "stopped_at IS NOT NULL")
    if cursor is not None:
        last = "SELECT created_at, id FROM sandboxes WHERE id = ?"
        conditions.append(f"(created_at, id) < ({last})")
        parameters.append(cursor)
    sql = f"{_SANDBOX}{_where(conditions)}ORDER BY created_at DESC, id DESC LIMIT ?"
    rows = connection.execute(sql, (*parameters, limit + 1)).fetchall()
    found = [_sandbox(row) for row in rows[:limit]]
    return SandboxPage(found, found[-1].id if len(rows) > limit else None)


def command(connection: Connection, id: str) -> CommandRecord | None:
    """One command, or None."""
    row = connection.execute(_COMMAND + "WHERE id = ?", (id,)).fetchone()
    return None if row is None else _command(row)


def commands(
    connection: Connection,
    sandbox_id: str | None,
    run_id: str | None,
    step_key: str | None,
    limit: int,
    cursor: str | None,
) -> CommandPage:
    """Commands of a sandbox, of a run or of one of its steps, oldest first."""
    check_limit(limit)
    given = {"sandbox_id": sandbox_id, "run_id": run_id, "step_key": step_key}
    conditions = [f"{name} = ?" for name, value in given.items() if value is not None]
    parameters: list[Any] = [value for value in given.values() if value is not None]
    if cursor is not None:
        last = "SELECT started_at, id FROM commands WHERE id = ?"
        conditions.append(f"(started_at, id) > ({last})")
        parameters.append(cursor)
    sql = f"{_COMMAND}{_where(conditions)}ORDER BY started_at, id LIMIT ?"
    rows = connection.execute(sql, (*parameters, limit + 1)).fetchall()
    found = [_command(row) for row in rows[:limit]]
    return CommandPage(found, found[-1].id if len(rows) > limit else None)


def egress(
    connection: Connection,
    sandbox_id: str | None,
    run_id: str | None,
    limit: int,
    cursor: int | None,
) -> EgressPage:
    """Attempts of a sandbox, or of all sandboxes of a run, to reach the network, oldest first."""
    check_limit(limit)
    given = {"sandbox_id": sandbox_id, "run_id": run_id}
    conditions = [f"{name} = ?" for name, value in given.items() if value is not None]
    parameters: list[Any] = [value for value in given.values() if value is not None]
    if cursor is not None:
        conditions.append("id > ?")
        parameters.append(cursor)
    sql = f"{_EGRESS}{_where(conditions)}ORDER BY id LIMIT ?"
    rows = connection.execute(sql, (*parameters, limit + 1)).fetchall()
    found = [_attempt(row) for row in rows[:limit]]
    return EgressPage(found, int(rows[limit - 1][0]) if len(rows) > limit else None)


def check_limit(limit: int) -> None:
    """Refuse a page that can't be meant."""
    if not 1 <= limit <= 1000:
        raise UsageError(f"a page of {limit} is not possible", hint="ask for 1 to 1000")


def _where(conditions: list[str]) -> str:
    return f"WHERE {' AND '.join(conditions)} " if conditions else ""


def _sandbox(row: tuple[Any, ...]) -> SandboxRecord:
    names = SandboxRecord.__slots__
    fields = dict(zip(names, row, strict=True))
    fields["network"] = tuple(json.loads(fields["network"]))
    for name in ("created_at", "stopped_at"):
        fields[name] = _moment(fields[name])
    return SandboxRecord(**fields)


def _command(row: tuple[Any, ...]) -> CommandRecord:
    fields = dict(zip(CommandRecord.__slots__, row, strict=True))
    fields["argv"] = tuple(json.loads(fields["argv"]))
    fields["limits_hit"] = tuple(json.loads(fields["limits_hit"]))
    for name in ("started_at", "ended_at"):
        fields[name] = _moment(fields[name])
    return CommandRecord(**fields)


def _attempt(row: tuple[Any, ...]) -> EgressRecord:
    fields = dict(zip(EgressRecord.__slots__, row[1:], strict=True))
    fields["at"] = _moment(fields["at"])
    fields["allowed"] = bool(fields["allowed"])
    return EgressRecord(**fields)


def _text(value: str | None) -> str | None:
    """Without lone surrogates: SQLite holds UTF-8."""
    return None if value is None else value.encode("utf-8", "replace").decode()


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
