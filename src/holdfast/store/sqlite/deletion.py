"""Deleting runs that have ended, with all that belongs to them.

The run's row and what others could find of it go in one transaction, so that it is there or it is
not. Its journal, streams and messages, which may be many, go after that, some at a time, so that
workers are not kept from writing; `deleted` says which runs that is still to be done for, and
whoever opens the store next goes on with it.

The children that its body has called go with it; runs that it has started stay, without a parent.
What was spent stays spent: model calls keep their numbers, for budgets and totals must add up, and
lose the run, its prompts and its replies. Records of its sandboxes and its approvals go.
"""

from __future__ import annotations

from typing import Final

from holdfast.errors import NotFound, Refused
from holdfast.records import Run
from holdfast.records.live import ANSWER
from holdfast.store.sqlite import queries
from holdfast.store.sqlite.database import Transaction

AT_ONCE: Final = 1000
"""Rows removed in one transaction."""

# A child belongs to the run whose body has called it, under its own id or that of its chain.
CALLED = """
SELECT c.id FROM runs c WHERE c.parent_id = ? AND coalesce(c.chain, c.id) IN (
  SELECT json_extract(e.meta, '$.run.id') FROM events e
  WHERE e.run_id = ? AND e.type = 'child.started')
"""
WANTED = "SELECT run_id FROM inbox WHERE ref = ? LIMIT 1"
CALL_UNDER_WAY = "SELECT id FROM calls WHERE run_id = ? AND status = 'started' LIMIT 1"
SANDBOX_UNDER_WAY = "SELECT id FROM sandboxes WHERE run_id = ? AND stopped_at IS NULL LIMIT 1"
ANSWERS = "SELECT chain, id FROM updates WHERE run_id = ?"

STATEMENTS: Final = (
    "UPDATE runs SET parent_id = NULL WHERE parent_id = :run",
    "UPDATE runs SET continued_from = NULL WHERE continued_from = :run AND chain IS NOT NULL",
    "DELETE FROM waits WHERE run_id = :run",
    "DELETE FROM inbox WHERE run_id = :run",
    "DELETE FROM taken WHERE run_id = :run",
    "DELETE FROM webhooks WHERE run_id = :run",
    "DELETE FROM attributes WHERE run_id = :run",
    "DELETE FROM published WHERE run_id = :run",
    "DELETE FROM updates WHERE run_id = :run",
    "DELETE FROM begun WHERE run_id = :run",
    "DELETE FROM approvals WHERE run_id = :run",
    # A key that was made for the run would have no limit any more.
    "UPDATE virtual_keys SET revoked_at = coalesce(revoked_at, :at) WHERE run_id = :run",
    "DELETE FROM call_replays WHERE call_id IN (SELECT id FROM calls WHERE run_id = :run)",
    """
    UPDATE calls SET run_id = NULL, step = NULL, step_key = NULL, key = NULL, prompt = NULL,
      reply = NULL, message = NULL
    WHERE run_id = :run
    """,
    "DELETE FROM spend WHERE scope = 'run:' || :run",
    "DELETE FROM spend_limits WHERE scope = 'run:' || :run",
    # What runs that it has started spend counts for whatever it counted for itself.
    """
    UPDATE spend_parents SET parent =
      (SELECT above.parent FROM spend_parents above WHERE above.child = 'run:' || :run)
    WHERE parent = 'run:' || :run
      AND EXISTS (SELECT 1 FROM spend_parents WHERE child = 'run:' || :run)
    """,
    "DELETE FROM spend_parents WHERE parent = 'run:' || :run OR child = 'run:' || :run",
    """
    DELETE FROM egress WHERE run_id = :run
      OR sandbox_id IN (SELECT id FROM sandboxes WHERE run_id = :run)
    """,
    """
    DELETE FROM commands WHERE run_id = :run
      OR sandbox_id IN (SELECT id FROM sandboxes WHERE run_id = :run)
    """,
    "DELETE FROM sandboxes WHERE run_id = :run",
    "DELETE FROM runs WHERE id = :run",
    "INSERT INTO deleted VALUES (:run) ON CONFLICT DO NOTHING",
)
"""What others could find of a run."""

MANY: Final = (
    """
    DELETE FROM events WHERE log IN
      (SELECT log FROM events WHERE run_id = :run ORDER BY seq LIMIT :most)
    """,
    """
    DELETE FROM blobs WHERE run_id = :run AND hash IN
      (SELECT hash FROM blobs WHERE run_id = :run LIMIT :most)
    """,
    """
    DELETE FROM chunks WHERE run_id = :run AND (stream, idx) IN
      (SELECT stream, idx FROM chunks WHERE run_id = :run LIMIT :most)
    """,
    """
    DELETE FROM receipts WHERE run_id = :run AND message IN
      (SELECT message FROM receipts WHERE run_id = :run LIMIT :most)
    """,
    """
    DELETE FROM messages WHERE id IN
      (SELECT id FROM messages WHERE run_id = :run LIMIT :most)
    """,
)
"""What a run may have thousands of."""


def delete(tx: Transaction, run_id: str, at: float) -> list[str]:
    """Delete a run that has ended, and the children its body has called; returns their ids.

    The rest is removed by `purge`, which has to be called until it says that nothing is left.
    """
    tx.flush()
    found = queries.get(tx.connection, run_id)
    if found is None:
        raise NotFound(f"there is no run {run_id}", hint="holdfast runs list shows what there is")
    family = [found]
    for each in family:
        _check(tx, each, found)
        children = tx.execute(CALLED, (each.id, each.id)).fetchall()
        family += filter(None, (queries.get(tx.connection, str(row[0])) for row in children))
    for each in family:
        _delete(tx, each.id, at)
    return [each.id for each in family]


def _check(tx: Transaction, run: Run, asked: Run) -> None:
    """Refuse what somebody still needs, or is still at work for."""
    whose = run.id if run.id == asked.id else f"{asked.id} has called {run.id}, which"
    if not run.ended:
        raise Refused(
            f"{whose} is {run.status}: only runs that have ended can be deleted",
            hint="cancel it first, and wait for its end",
        )
    held = tx.execute("SELECT reason FROM holds WHERE run_id = ?", (run.id,)).fetchone()
    if held is not None:
        raise Refused(
            f"{whose} is held: {held[0]}", hint="holdfast runs release lets it be deleted again"
        )
    waiting = tx.execute(WANTED, (run.id,)).fetchone()
    if waiting is not None:
        raise Refused(
            f"{waiting[0]} waits for {run.id} and has not taken its result yet",
            hint="try again when it has gone on",
        )
    for sql, what in ((CALL_UNDER_WAY, "model call"), (SANDBOX_UNDER_WAY, "sandbox")):
        open_still = tx.execute(sql, (run.id,)).fetchone()
        if open_still is not None:
            raise Refused(
                f"the {what} {open_still[0]} of {run.id} has not ended yet",
                hint="try again in a moment",
            )


def _delete(tx: Transaction, run_id: str, at: float) -> None:
    for chain, id in tx.execute(ANSWERS, (run_id,)).fetchall():
        tx.execute("DELETE FROM messages WHERE name = ?", (f"{ANSWER}{chain}/{id}",))
    for sql in STATEMENTS:
        tx.execute(sql, {"run": run_id, "at": at})


def purge(tx: Transaction, most: int = AT_ONCE) -> bool:
    """Remove some of what is left of deleted runs; False if nothing was."""
    found = tx.execute("SELECT run_id FROM deleted LIMIT 1").fetchone()
    if found is None:
        return False
    parameters = {"run": found[0], "most": most}
    removed = sum(tx.execute(sql, parameters).rowcount for sql in MANY)
    if removed == 0:
        tx.execute("DELETE FROM deleted WHERE run_id = ?", (found[0],))
    return True
