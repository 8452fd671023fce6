"""Approvals in the store: asked for, decided once, used once; and steps that begin once.

A decision and the mail that wakes its run are one transaction. Whether a decision may be made
is checked in that transaction too, so that of two deciders one is refused. Signatures are made
and checked by the loop; here they are text.
"""

from __future__ import annotations

import json

from holdfast.errors import ApprovalRefused, NotFound
from holdfast.records.approvals import Approval, ApprovalStatus, Verdict
from holdfast.store.base import DECIDED
from holdfast.store.connection import Connection
from holdfast.store.sqlite import mailbox
from holdfast.store.sqlite.database import Transaction

INSERT = """
INSERT INTO approvals (id, run_id, title, tool, arguments, arguments_hash, asked_of,
  requested_at, expires_at, fallback, escalated_from) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""
COLUMNS = """
a.id, a.run_id, a.title, a.tool, a.arguments, a.arguments_hash, a.asked_of, a.requested_at,
a.expires_at, a.fallback, a.escalated_from, {status}, a.decided_at, a.decided_by, a.note, a.how,
a.signature, a.used_at, a.used_by
"""
# A pending approval of a run that has ended waits for nobody; if the run is retried, it does so
# again. Past its time limit it can't be decided, whether or not its run has noticed.
STATUS = """
CASE WHEN a.status <> 'pending' THEN a.status
     WHEN r.finished_at IS NOT NULL THEN 'withdrawn'
     WHEN a.expires_at <= :now THEN 'expired'
     ELSE 'pending' END
"""
SHOWN = COLUMNS.format(status=STATUS)
FROM = "FROM approvals a JOIN runs r ON r.id = a.run_id"
ONE = f"SELECT {SHOWN} {FROM} WHERE a.id = :id"
LIST = f"""
SELECT {SHOWN} {FROM}
WHERE (CAST(:before AS TEXT) IS NULL OR a.id < :before) ORDER BY a.id DESC LIMIT :limit
"""
LIST_BY_STATUS = f"""
SELECT {SHOWN} {FROM}
WHERE a.status IN (:status, :stored) AND {STATUS} = :status
  AND (CAST(:before AS TEXT) IS NULL OR a.id < :before) ORDER BY a.id DESC LIMIT :limit
"""
LIST_BY_RUN = f"""
SELECT {SHOWN} {FROM}
WHERE a.run_id = :run AND (CAST(:status AS TEXT) IS NULL OR {STATUS} = :status)
  AND (CAST(:before AS TEXT) IS NULL OR a.id < :before) ORDER BY a.id DESC LIMIT :limit
"""
CLOSE = """
UPDATE approvals SET status = ?, decided_at = ?, decided_by = ?, note = ?, how = ?, signature = ?
WHERE id = ?
"""
REOPEN = """
UPDATE approvals SET status = 'pending', decided_at = NULL, decided_by = NULL, note = '',
  how = NULL, signature = NULL WHERE run_id = ? AND status = 'withdrawn'
"""


def add(tx: Transaction, new: Approval) -> None:
    """Ask; asked again with the same id, nothing changes."""
    tx.execute(
        INSERT,
        (
            new.id, new.run_id, new.title, new.tool, json.dumps(new.arguments),
            new.arguments_hash, new.asked_of, new.requested_at, new.expires_at, new.fallback,
            new.escalated_from,
        ),
    )  # fmt: skip


def get(connection: Connection, id: str, now: float) -> Approval | None:
    """An approval, with its status as of now."""
    row = connection.execute(ONE, {"id": id, "now": now}).fetchone()
    return None if row is None else _read(row)


def listed(
    connection: Connection,
    status: ApprovalStatus | None,
    run: str | None,
    limit: int,
    before: str | None,
    now: float,
) -> list[Approval]:
    """Approvals, newest first."""
    # What is stored as pending may count as expired or withdrawn by now.
    stored = "pending" if status in ("expired", "withdrawn") else status
    found = {
        "status": status, "stored": stored, "run": run, "limit": limit, "before": before,
        "now": now,
    }  # fmt: skip
    query = LIST_BY_RUN if run is not None else LIST if status is None else LIST_BY_STATUS
    return [_read(row) for row in connection.execute(query, found)]


def _read(row: tuple[object, ...]) -> Approval:
    fields = list(row)
    fields[4] = json.loads(str(fields[4]))
    return Approval(*fields)  # type: ignore[arg-type]


def decide(tx: Transaction, id: str, verdict: Verdict) -> Approval:
    """Close a pending approval and wake its run; refuse one that is not pending."""
    found = _existing(tx, id, verdict.at)
    if found.status != "pending":
        raise ApprovalRefused(f"{id} is {found.status}{_by(found)}", hint="a decision counts once")
    _close(tx, id, verdict)
    body = json.dumps({"approval": id}).encode()
    mailbox.send(tx, DECIDED + id, body, f"approval:{id}", found.run_id, verdict.at)
    return _existing(tx, id, verdict.at)


def lapse(tx: Transaction, id: str, verdict: Verdict) -> Approval:
    """Nobody decided in time: close it so, unless somebody was faster; say how it stands."""
    stored = tx.execute("SELECT status FROM approvals WHERE id = ?", (id,)).fetchone()
    if stored is not None and stored[0] == "pending":
        _close(tx, id, verdict)
    return _existing(tx, id, verdict.at)


def reopen(tx: Transaction, run_id: str) -> None:
    """A failed run is tried again: what it no longer waited for, it may wait for again."""
    tx.execute(REOPEN, (run_id,))


def use(tx: Transaction, id: str, step: str, now: float) -> Approval:
    """Note which step acts on an approval; refuse a second one."""
    found = _existing(tx, id, now)
    if found.used_by not in (None, step):
        raise ApprovalRefused(f"{id} was acted on before, by {found.used_by}")
    if found.used_by is None:
        tx.execute("UPDATE approvals SET used_at = ?, used_by = ? WHERE id = ?", (now, step, id))
    return _existing(tx, id, now)


def begin_once(tx: Transaction, run_id: str, key: str, now: float) -> bool:
    """Note that a step begins; False if that was noted before."""
    insert = "INSERT INTO begun VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
    return tx.execute(insert, (run_id, key, now)).rowcount == 1


def known_secret(connection: Connection, name: str) -> bytes | None:
    """The store's secret of this name, if it has been made."""
    row = connection.execute("SELECT value FROM secrets WHERE name = ?", (name,)).fetchone()
    return None if row is None else bytes(row[0])


def secret(tx: Transaction, name: str, fresh: bytes) -> bytes:
    """The store's secret of this name; `fresh` becomes it if there is none yet."""
    tx.execute("INSERT INTO secrets VALUES (?, ?) ON CONFLICT DO NOTHING", (name, fresh))
    found = known_secret(tx.connection, name)
    assert found is not None
    return found


def _close(tx: Transaction, id: str, verdict: Verdict) -> None:
    closed = (verdict.status, verdict.at, verdict.by, verdict.note, verdict.how, verdict.signature)
    tx.execute(CLOSE, (*closed, id))


def _existing(tx: Transaction, id: str, now: float) -> Approval:
    found = get(tx.connection, id, now)
    if found is None:
        raise NotFound(f"there is no approval {id}", hint="holdfast approvals list")
    return found


def _by(found: Approval) -> str:
    return f" by {found.decided_by}" if found.decided_by else ""
