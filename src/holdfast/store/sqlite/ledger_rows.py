"""The ledger's rows of calls and virtual keys: SQL in, records out.

Of a virtual key only the hash is kept. Everything here runs inside the ledger's transaction.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple, cast

from holdfast import json_text
from holdfast.errors import CallMismatch
from holdfast.json_text import joined
from holdfast.records.calls import Call, CallEnd, CallStart, CallStatus, ProviderAttempt, VirtualKey
from holdfast.store.connection import Connection
from holdfast.store.ledger import CallTotals

INSERT = """
INSERT INTO calls (id, status, key, request_hash, owner, model, format, run_id, workflow, step,
  step_key, attempt, api_key, tags, scopes, held_usd, held_tokens, started_at, prompt)
VALUES (?, 'started', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
FINISH = """
UPDATE calls SET status = ?, finished_at = ?, provider = ?, served = ?, finish = ?,
  input_tokens = ?, cached_tokens = ?, cache_write_tokens = ?, output_tokens = ?,
  reasoning_tokens = ?, estimated = ?, cost = ?, charge = ?, charge_tokens = ?, prices = ?,
  latency = ?, first_token = ?, attempts = ?, error = ?, message = ?, reply = ?,
  held_usd = 0, held_tokens = 0
WHERE id = ? AND status = 'started' AND held_usd = ? AND held_tokens = ?
"""
KEEP_REPLAY = "INSERT INTO call_replays (call_id, sealed, expires_at) VALUES (?, ?, ?)"
_LOSE = """
UPDATE calls SET status = 'unknown', finished_at = ?, charge = ?, charge_tokens = ?,
  estimated = 1, error = 'OutcomeUnknown', held_usd = 0, held_tokens = 0,
  message = 'the process that made this call died before it ended'
WHERE id = ? AND status = 'started'
"""
_BY_KEY = """
SELECT * FROM calls WHERE key = ? AND status IN ('started', 'completed', 'unknown')
"""
_LATEST = """
SELECT * FROM calls WHERE (CAST(? AS TEXT) IS NULL OR run_id = ?)
  AND (CAST(? AS TEXT) IS NULL OR status = ?)
ORDER BY started_at DESC, id DESC LIMIT ?
"""


TOTALS = """count(*), coalesce(sum(input_tokens), 0), coalesce(sum(cached_tokens), 0),
  coalesce(sum(output_tokens), 0), coalesce(sum(cost), 0),
  count(*) FILTER (WHERE cost IS NULL AND status <> 'started'),
  count(*) FILTER (WHERE status = 'started'),
  coalesce(max(model), '')"""
"""The columns of `CallTotals`: whoever sums up calls does it by these."""
_OF_RUN = f"SELECT {TOTALS} FROM calls WHERE run_id = ?"  # noqa: S608
_BY_STEP = f"SELECT coalesce(step_key, ''), {TOTALS} FROM calls WHERE run_id = ? GROUP BY 1"  # noqa: S608
_RUNS_BELOW = """
WITH RECURSIVE below (id) AS (
  SELECT id FROM runs WHERE parent_id = ?
  UNION
  SELECT runs.id FROM runs JOIN below ON runs.parent_id = below.id
)"""
_COUNT_BELOW = f"{_RUNS_BELOW} SELECT count(*) FROM below"  # noqa: S608
_OF_RUNS_BELOW = f"{_RUNS_BELOW} SELECT {TOTALS} FROM calls WHERE run_id IN (SELECT id FROM below)"  # noqa: S608

_UNSTORABLE = (
    OverflowError, UnicodeEncodeError, sqlite3.ProgrammingError, sqlite3.InterfaceError,
    sqlite3.DataError, sqlite3.IntegrityError,
)  # fmt: skip
_MOST = 10**15
_LONGEST = 100_000_000


class Hold(NamedTuple):
    """What a call in flight holds, and where: nanodollars and tokens of each scope."""

    scopes: Sequence[str]
    usd: int
    tokens: int


def insert(
    connection: Connection,
    start: CallStart,
    owner: str,
    *,
    scopes: Sequence[str],
    usd: int,
    tokens: int,
) -> None:
    connection.execute(INSERT, inserted(start, owner, scopes=scopes, usd=usd, tokens=tokens))


def inserted(
    start: CallStart, owner: str, *, scopes: Sequence[str], usd: int, tokens: int
) -> tuple[Any, ...]:
    """The values of `INSERT`."""
    return (
        (start.id, start.key, start.request_hash, owner, start.model, start.format, start.run_id,
         start.workflow, start.step, start.step_key, start.attempt, start.api_key,
         _text(start.tags) if start.tags else "[]", _text(scopes), usd, tokens, start.started_at,
         start.prompt and joined(start.prompt))
    )  # fmt: skip


def finish(
    connection: Connection, call_id: str, end: CallEnd, held: Hold, replays_for: float
) -> bool:
    """Record the end of a call that is in flight and holds so much; False: there is none."""
    values = finished(call_id, end, held)
    try:
        written = connection.execute(FINISH, values)
    except _UNSTORABLE:  # nothing that came from outside may keep a call from ending
        written = connection.execute(FINISH, storable(values))
    if not written.rowcount:
        return False
    if end.replay is not None:
        connection.execute(KEEP_REPLAY, (call_id, end.replay, end.finished_at + replays_for))
    return True


def finished(call_id: str, end: CallEnd, held: Hold) -> tuple[Any, ...]:
    """The values of `FINISH`."""
    prices = None if end.prices is None else _text(end.prices)
    attempts = _text([_plain(attempt) for attempt in end.attempts])
    return (
        end.status, end.finished_at, end.provider, end.served, end.finish, end.input_tokens,
        end.cached_tokens, end.cache_write_tokens, end.output_tokens, end.reasoning_tokens,
        int(end.estimated), end.cost, end.charge, end.charge_tokens, prices, end.latency,
        end.first_token, attempts, end.error, end.message, end.reply, call_id, held.usd,
        held.tokens,
    )  # fmt: skip


def storable(values: Sequence[object]) -> tuple[Any, ...]:
    """The values as a store can take them, whatever came from outside."""
    return tuple(map(_storable, values))


def _storable(value: object) -> object:
    """The value as the store can take it: text that is text, numbers within its integers."""
    if value is None or isinstance(value, float | bytes):
        return value
    if isinstance(value, int):
        return max(min(value, _MOST), -_MOST)
    return joined(str(value))[:_LONGEST]


def totals(connection: Connection, run_id: str) -> CallTotals:
    """What all calls of a run came to."""
    return CallTotals(*connection.execute(_OF_RUN, (run_id,)).fetchone())


def totals_below(connection: Connection, run_id: str) -> tuple[CallTotals, int]:
    """What all calls of its child runs and theirs came to, and how many runs those are."""
    (children,) = connection.execute(_COUNT_BELOW, (run_id,)).fetchone()
    if not children:
        return CallTotals(), 0
    return CallTotals(*connection.execute(_OF_RUNS_BELOW, (run_id,)).fetchone()), children


def totals_by_step(connection: Connection, run_id: str) -> dict[str, CallTotals]:
    """The same for each step of a run, by its key."""
    return {key: CallTotals(*sums) for key, *sums in connection.execute(_BY_STEP, (run_id,))}


def lose(connection: Connection, call_id: str, usd: int, tokens: int) -> None:
    connection.execute(_LOSE, (time.time(), usd, tokens, call_id))


def held(connection: Connection, call_id: str) -> Hold | None:
    """What a call in flight holds; None once it has ended."""
    row = connection.execute(
        "SELECT scopes, held_usd, held_tokens FROM calls WHERE id = ? AND status = 'started'",
        (call_id,),
    ).fetchone()
    return None if row is None else Hold(json_text.load(row[0]), row[1], row[2])


def set_hold(connection: Connection, call_id: str, usd: int, tokens: int) -> None:
    connection.execute(
        "UPDATE calls SET held_usd = ?, held_tokens = ? WHERE id = ?", (usd, tokens, call_id)
    )


def in_flight(connection: Connection, owner: str) -> list[tuple[str, list[str], int, int]]:
    rows = connection.execute(
        "SELECT id, scopes, held_usd, held_tokens FROM calls"
        " WHERE owner = ? AND status = 'started'",
        (owner,),
    ).fetchall()
    return [(row[0], json_text.load(row[1]), row[2], row[3]) for row in rows]


def by_key(connection: Connection, start: CallStart) -> Call | None:
    """The live call with this key; raises CallMismatch if it asked for something else."""
    call = _one(connection, _BY_KEY, (start.key,))
    if call is not None and call.start.request_hash != start.request_hash:
        raise CallMismatch(
            f"the key of call {call.start.id} was used before, for another request",
            hint="use one idempotency key per request; a changed request needs a new one",
        )
    return call


def by_id(connection: Connection, call_id: str) -> Call | None:
    return _one(connection, "SELECT * FROM calls WHERE id = ?", (call_id,))


def latest(
    connection: Connection, run_id: str | None, status: str | None, limit: int
) -> list[Call]:
    cursor = connection.execute(_LATEST, (run_id, run_id, status, status, limit))
    names = [column[0] for column in cursor.description]
    return [_call(dict(zip(names, row, strict=True))) for row in cursor.fetchall()]


def replay(connection: Connection, call_id: str) -> bytes | None:
    row = connection.execute(
        "SELECT sealed FROM call_replays WHERE call_id = ?", (call_id,)
    ).fetchone()
    return None if row is None else row[0]


def release(connection: Connection, call_id: str) -> tuple[list[str], int, int]:
    """Let an ended call count nothing any more; returns what it counted, and where."""
    row = connection.execute(
        "SELECT scopes, charge, charge_tokens FROM calls WHERE id = ?", (call_id,)
    ).fetchone()
    if row is None:
        return [], 0, 0
    connection.execute("UPDATE calls SET charge = 0, charge_tokens = 0 WHERE id = ?", (call_id,))
    return json_text.load(row[0]), row[1], row[2]


def drop_key(connection: Connection, call_id: str) -> None:
    connection.execute("UPDATE calls SET key = NULL WHERE id = ?", (call_id,))


def prune(connection: Connection) -> None:
    """Drop replies that are no longer kept, with their claim to the key."""
    now = time.time()
    connection.execute(
        "UPDATE calls SET key = NULL WHERE id IN"
        " (SELECT call_id FROM call_replays WHERE expires_at < ?)",
        (now,),
    )
    connection.execute("DELETE FROM call_replays WHERE expires_at < ?", (now,))
    connection.execute("DELETE FROM kept WHERE expires_at < ?", (now,))


_KEEP = """
INSERT INTO kept (name, data, expires_at) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET data = excluded.data, expires_at = excluded.expires_at
WHERE ? = 1 OR kept.expires_at <= ?"""


def keep(connection: Connection, name: str, data: bytes, *, until: float, replace: bool) -> bool:
    """Keep data under a name; False if something is kept there that is not to be replaced."""
    now = time.time()
    return connection.execute(_KEEP, (name, data, until, replace, now)).rowcount > 0


def kept(connection: Connection, name: str) -> bytes | None:
    row = connection.execute(
        "SELECT data FROM kept WHERE name = ? AND expires_at > ?", (name, time.time())
    ).fetchone()
    return None if row is None else row[0]


def add_owner(connection: Connection, owner: str) -> None:
    connection.execute(
        "INSERT INTO call_owners (id, pid, started_at) VALUES (?, ?, ?)",
        (owner, os.getpid(), time.time()),
    )


def owners(connection: Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT id FROM call_owners").fetchall()]


def remove_owner(connection: Connection, owner: str) -> None:
    connection.execute("DELETE FROM call_owners WHERE id = ?", (owner,))


def remove_idle_owner(connection: Connection, owner: str) -> None:
    """Sign off; calls still in flight keep the name, so that they are found and settled."""
    connection.execute(
        "DELETE FROM call_owners WHERE id = ? AND NOT EXISTS"
        " (SELECT 1 FROM calls WHERE owner = ? AND status = 'started')",
        (owner, owner),
    )


def _text(data: object) -> str:
    return json_text.dump(data).decode()


def _one(connection: Connection, sql: str, values: tuple[Any, ...]) -> Call | None:
    cursor = connection.execute(sql, values)
    row = cursor.fetchone()
    if row is None:
        return None
    return _call(dict(zip([column[0] for column in cursor.description], row, strict=True)))


def _call(row: dict[str, Any]) -> Call:
    start = CallStart(
        id=row["id"], model=row["model"], format=row["format"], started_at=row["started_at"],
        key=row["key"], request_hash=row["request_hash"], run_id=row["run_id"],
        workflow=row["workflow"], step=row["step"], step_key=row["step_key"],
        attempt=row["attempt"], api_key=row["api_key"], tags=tuple(json_text.load(row["tags"])),
        prompt=row["prompt"],
    )  # fmt: skip
    status = cast(CallStatus, row["status"])
    end = None if row["finished_at"] is None else _end(row, status)
    return Call(start, status, end, row["owner"], row["held_usd"], row["held_tokens"])


def _end(row: dict[str, Any], status: CallStatus) -> CallEnd:
    return CallEnd(
        status=status, finished_at=row["finished_at"], provider=row["provider"],
        served=row["served"], finish=row["finish"], input_tokens=row["input_tokens"],
        cached_tokens=row["cached_tokens"], cache_write_tokens=row["cache_write_tokens"],
        output_tokens=row["output_tokens"], reasoning_tokens=row["reasoning_tokens"],
        estimated=bool(row["estimated"]), cost=row["cost"], charge=row["charge"],
        charge_tokens=row["charge_tokens"],
        prices=None if row["prices"] is None else json_text.load(row["prices"]),
        latency=row["latency"], first_token=row["first_token"],
        attempts=tuple(_attempt(found) for found in json_text.load(row["attempts"])),
        error=row["error"], message=row["message"], reply=row["reply"],
    )  # fmt: skip


def _plain(attempt: ProviderAttempt) -> dict[str, Any]:
    return {
        "provider": attempt.provider,
        "model": attempt.model,
        "seconds": attempt.seconds,
        "status": attempt.status,
        "error": attempt.error,
        "message": attempt.message,
        "charged": None if attempt.charged is None else str(attempt.charged),
    }


def _attempt(found: dict[str, Any]) -> ProviderAttempt:
    charged = found.pop("charged", None)
    return ProviderAttempt(**found, charged=None if charged is None else Decimal(charged))


_KEY_COLUMNS = "id, name, hash, created_at, expires_at, revoked_at, models, run_id, tags"


def add_key(connection: Connection, key: VirtualKey) -> None:
    connection.execute(
        f"INSERT INTO virtual_keys ({_KEY_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        (key.id, key.name, key.hash, key.created_at, key.expires_at, key.revoked_at,
         json.dumps(key.models), key.run_id, json.dumps(key.tags)),
    )  # fmt: skip


def find_key(connection: Connection, hash: str) -> VirtualKey | None:
    row = connection.execute(
        f"SELECT {_KEY_COLUMNS} FROM virtual_keys WHERE hash = ?",  # noqa: S608
        (hash,),
    ).fetchone()
    return None if row is None else _key(row)


def every_key(connection: Connection) -> list[VirtualKey]:
    rows = connection.execute(
        f"SELECT {_KEY_COLUMNS} FROM virtual_keys ORDER BY created_at"  # noqa: S608
    ).fetchall()
    return [_key(row) for row in rows]


def revoke_key(connection: Connection, id: str, at: float) -> bool:
    cursor = connection.execute(
        "UPDATE virtual_keys SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?", (at, id)
    )
    return cursor.rowcount == 1


def _key(row: tuple[Any, ...]) -> VirtualKey:
    return VirtualKey(
        id=row[0], name=row[1], hash=row[2], created_at=row[3], expires_at=row[4],
        revoked_at=row[5], models=tuple(json.loads(row[6])), run_id=row[7],
        tags=tuple(json.loads(row[8])),
    )  # fmt: skip
