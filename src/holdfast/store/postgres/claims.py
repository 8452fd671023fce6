"""Claims of many workers at once: each takes runs that no other is taking, in two statements.

Rows that another transaction has locked are passed over (SKIP LOCKED), so that nobody waits and no
run is handed out twice. A claim that meets more than runs that may simply go on (a worker to bury,
a suspect, a deadline that has passed, a request, a limit) is carried out alone, as in SQLite.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.records import Worker
from holdfast.store.base import Claim
from holdfast.store.postgres.transaction import NotShared, PostgresTransaction
from holdfast.store.sqlite import leases, queries
from holdfast.store.sqlite.database import Transaction

RARE = """
SELECT
  EXISTS (SELECT 1 FROM runs WHERE workflow IN (SELECT value FROM json_each(?)) AND deadline <= ?
    AND deadline IS NOT NULL AND owner IS NULL AND status IN ('queued', 'paused')),
  EXISTS (SELECT 1 FROM runs WHERE workflow IN (SELECT value FROM json_each(?)) AND due_at <= ?
    AND owner IS NULL AND status IN ('pending', 'waiting') AND crashes >= 2),
  EXISTS (SELECT 1 FROM next_turns WHERE workflow IN (SELECT value FROM json_each(?)) AND at <= ?)
"""
PICK = """
SELECT due.* FROM json_array_elements(?::json) AS known (pair), LATERAL (
  SELECT r.id, coalesce(r.deadline <= ?, false) OR r.admitted = 0
    OR EXISTS (SELECT 1 FROM inbox i WHERE i.run_id = r.id
               AND i.kind IN ('cancel', 'pause', 'resume', 'terminate')),
    r.due_at
  FROM runs r
  WHERE r.workflow = known.pair ->> 0 AND r.version = coalesce(known.pair ->> 1, r.version)
    AND r.due_at <= ? AND r.owner IS NULL
    AND r.status IN ('pending', 'waiting') AND r.crashes < 2
  ORDER BY r.due_at LIMIT ? FOR NO KEY UPDATE SKIP LOCKED
) due LIMIT ?
"""
TAKE = """
UPDATE runs SET owner = ?, fence = fence + 1, status = 'running', due_at = NULL,
  claim_seq = greatest(claim_seq,
    coalesce((SELECT max(seq) FROM events WHERE run_id = runs.id), 0)),
  started_at = coalesce(started_at, ?), begun_at = coalesce(begun_at, ?)
WHERE id IN (SELECT value FROM json_each(?)) RETURNING id, fence, crashes, started_at
"""


@dataclass(frozen=True, slots=True)
class Claiming:
    """The operation of a claim."""

    worker: Worker
    wanted: leases.Wanted
    moment: leases.Moment
    lost: Sequence[str]

    def __call__(self, tx: Transaction) -> list[Claim]:
        assert isinstance(tx, PostgresTransaction)
        if tx.shared:
            return self._at_once(tx)
        return leases.claim(tx, self.worker, self.wanted, self.moment, self.lost)

    def _at_once(self, tx: Transaction) -> list[Claim]:
        tx.flush()  # a run that this batch has given back may be taken again
        now, (workflows, limit, versions) = self.moment.wall, self.wanted
        known = json.dumps(list(workflows))
        rare = (known, now) * 3
        overdue, suspect, queue = tx.execute(RARE, rare).fetchone()
        if overdue or queue or (suspect and not leases.has_suspect(tx.connection, self.worker.id)):
            raise NotShared("a deadline, a queue or a suspect")
        leases.lease(tx, self.worker, self.moment)
        named = json.dumps([[name, versions.get(name)] for name in workflows])
        found = tx.execute(PICK, (named, now, now, limit, limit)).fetchall()
        if any(special for _, special, _ in found):
            raise NotShared("a request, a deadline or a limit")
        if not found:
            return []
        # Of those that are due at the same moment, the one that was made first comes first.
        ids = [str(run_id) for run_id, *_ in sorted(found, key=lambda row: (row[2], row[0]))]
        runs = queries.get_many(tx.connection, ids)
        taken = tx.execute(TAKE, (self.worker.id, now, now, json.dumps(ids)))
        claims = {
            run_id: Claim(replace(runs[run_id], started_at=float(began)), fence, crashes)
            for run_id, fence, crashes, began in taken
        }
        return [claims[run_id] for run_id in ids]
