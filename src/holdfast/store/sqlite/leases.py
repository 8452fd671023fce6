"""Who has which run: claims, leases and fences.

A worker holds its runs by one lease, the expiry in its `workers` row, by the machine's steady
clock: nobody can set that, and a lease of an earlier boot has ended with it. When it has passed,
or the worker is known to be dead, its runs can be claimed by others. Each claim raises the run's
fence, which every append must name: a worker that was paused and comes back can't write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from holdfast.errors import LeaseLost
from holdfast.records import COMPLETIONS, Run, Worker
from holdfast.store.base import Claim, Created, NewRun
from holdfast.store.connection import Connection
from holdfast.store.sqlite import admission, creation, deadlines, gathering, projections, queries
from holdfast.store.sqlite.database import Transaction

LEASE = """
INSERT INTO workers (id, pid, host, started_at, expires_at, boot, lease_until)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, boot = excluded.boot,
  lease_until = excluded.lease_until
"""
DUE = """
SELECT id FROM runs
WHERE workflow = ? AND due_at <= ? AND owner IS NULL AND status IN ('pending', 'waiting')
  AND crashes < 2 AND version = coalesce(?, version)
ORDER BY due_at, rowid LIMIT ?
"""
# A run that two workers have died with is a suspect. A worker has one of them in hand at a time,
# until it gets on: those that were only there when another killed the worker are not blamed.
SUSPECT = """
SELECT id, due_at FROM runs
WHERE workflow = ? AND due_at <= ? AND owner IS NULL AND status IN ('pending', 'waiting')
  AND crashes >= 2 AND version = coalesce(?, version)
ORDER BY due_at LIMIT 1
"""
NEXT_DUE = """
SELECT due_at FROM runs
WHERE workflow = ? AND owner IS NULL AND status IN ('pending', 'waiting')
  AND due_at IS NOT NULL AND (crashes < 2 OR ? = 1) AND version = coalesce(?, version)
ORDER BY due_at LIMIT 1
"""
SUSPECTS_IN_HAND = "SELECT id, claim_seq FROM runs WHERE owner = ? AND crashes >= 2"
# A lease without end is no process's: neither a boot nor any time ends it.
EXPIRED = """
SELECT id FROM workers WHERE (boot <> ? OR lease_until <= ?) AND lease_until < 9e9 AND id <> ?
"""
# Moments that had passed before the wall clock was set back.
STILL_DUE = """
UPDATE runs SET due_at = ?
WHERE due_at > ? AND due_at <= ? AND owner IS NULL AND status IN ('pending', 'waiting')
"""
HELD = "SELECT id, fence, crashes, started_at FROM runs WHERE owner = ? ORDER BY id"
OWNED = "SELECT id, workflow, claim_seq FROM runs WHERE owner = ?"
LAST_SEQ = "SELECT coalesce(max(seq), 0) FROM events WHERE run_id = ?"
TAKE = """
UPDATE runs SET owner = ?, fence = fence + 1, status = 'running', due_at = NULL,
  claim_seq = max(claim_seq, ?),
  started_at = coalesce(started_at, ?), begun_at = coalesce(begun_at, ?)
WHERE id = ? RETURNING fence, crashes, started_at
"""
ORPHAN = """
UPDATE runs SET owner = NULL, fence = fence + 1, status = 'waiting', due_at = ?, crashes = ?
WHERE id = ?
"""
PROGRESS = f"""
SELECT count(*) FROM events WHERE run_id = ? AND seq > ? AND type IN ({",".join("?" * len(COMPLETIONS))})
"""  # noqa: S608, E501 - only question marks are put in
RELEASE = """
UPDATE runs SET owner = NULL, fence = fence + 1, status = 'waiting', due_at = ?, crashes = 0,
  claim_seq = (SELECT max(seq) FROM events WHERE run_id = runs.id)
WHERE id = ? AND fence = ?
"""
RETIRE = """
UPDATE runs SET owner = NULL, fence = fence + 1, status = 'waiting', due_at = ?, crashes = 0,
  claim_seq = (SELECT max(seq) FROM events WHERE run_id = runs.id)
WHERE owner = ?
"""


class Moment(NamedTuple):
    """Now, by both clocks."""

    wall: float
    steady: float
    boot: str


def check_fence(tx: Transaction, run_id: str, fence: int) -> None:
    """Refuse a worker that no longer owns the run."""
    sql = "SELECT 1 FROM runs WHERE id = ? AND fence = ?"
    if tx.execute(sql, (run_id, fence)).fetchone() is None:
        raise LeaseLost(f"{run_id} belongs to another worker now (fence {fence} is old)")


def lease(tx: Transaction, worker: Worker, now: Moment) -> None:
    """Write the worker's row, with its new expiry: once in a batch is enough."""
    if worker.id in tx.leased:
        return
    tx.leased.add(worker.id)
    shown, ends = now.wall + worker.lease_seconds, now.steady + worker.lease_seconds
    row = (worker.id, worker.pid, worker.host, worker.started_at, shown, now.boot, ends)
    tx.execute(LEASE, row)


class Creating:
    """The operation of a start."""

    __slots__ = ("moment", "new", "worker")

    def __init__(self, new: NewRun, worker: Worker | None, moment: Callable[[], Moment]) -> None:
        self.new, self.worker, self.moment = new, worker, moment

    def __call__(self, tx: Transaction) -> Created:
        return create(tx, self.new, self.worker, self.moment())


def create(tx: Transaction, new: NewRun, worker: Worker | None, now: Moment) -> Created:
    """Create a run, or find the one with its key; claim a new one for `worker` right away."""
    existed = creation.existing(tx, new)
    if existed is None and new.gather is not None:
        existed = gathering.into_open(tx, new, now.wall)
    if existed is not None:
        return Created(_existing(tx, existed), existed=True)
    admission.count_start(tx, new.workflow, new.start_rates, now.wall)
    owner = None if worker is None else creation.Owner(worker.id, now.wall)
    status = creation.create(tx, new, owner)
    projections.replace_others(tx, now.wall)
    taken = status == "running"
    run = Run(
        new.id,
        new.workflow,
        new.version,
        "pending" if taken else status,
        new.created_at,
        key=new.key,
        parent_id=new.parent_id,
        started_at=now.wall if taken else None,
        due_at=new.due_at,
        attributes=new.attributes,
        timeout=new.timeout,
        deadline=new.deadline,
    )
    if worker is None or not taken:
        return Created(run, existed=False)
    lease(tx, worker, now)
    return Created(run, existed=False, claim=Claim(run, 1, 0))


def _existing(tx: Transaction, run_id: str) -> Run:
    run = queries.get(tx.connection, run_id)
    assert run is not None, run_id
    return run


def expired(connection: Connection, me: str, now: Moment) -> list[str]:
    """Workers whose lease has run out."""
    return [str(row[0]) for row in connection.execute(EXPIRED, (now.boot, now.steady, me))]


def keep_due(tx: Transaction, before: float, now: float) -> None:
    """The wall clock was set back from `before` to `now`: what was due then is due now."""
    if tx.execute(STILL_DUE, (now, now, before)).rowcount:
        tx.due = True
    admission.set_back(tx, now)


class Wanted(NamedTuple):
    """What a worker would take: so many runs of these workflows."""

    workflows: Sequence[str]
    limit: int
    versions: Mapping[str, str] = MappingProxyType({})
    """The version that it has of a workflow, where it takes no other."""


def claim(
    tx: Transaction, worker: Worker, wanted: Wanted, moment: Moment, lost: Iterable[str]
) -> list[Claim]:
    """Own some of the runs that are wanted and due."""
    workflows, limit, versions = wanted
    lease(tx, worker, moment)
    now = moment.wall
    for gone in lost:
        _bury(tx, gone, now)
    deadlines.wake_overdue(tx, workflows, limit, now)
    due = _next_suspect(tx, worker.id, wanted, now)
    for workflow in workflows:
        if len(due) < limit:
            rows = tx.execute(DUE, (workflow, now, versions.get(workflow), limit - len(due)))
            due += [str(row[0]) for row in rows]
    going = [run_id for run_id in due if _may_go_on(tx, run_id, now)]
    known = [(name, versions.get(name)) for name in workflows]
    queued = admission.next_of_queues(tx, known, limit - len(going), now)
    going += [run_id for run_id in queued if _may_go_on(tx, run_id, now)]
    return [_take(tx, _existing(tx, run_id), worker, now) for run_id in going]


def _may_go_on(tx: Transaction, run_id: str, now: float) -> bool:
    """Whether a run that is due may be handed out: what was asked of it comes first."""
    if not projections.do_what_was_asked(tx, run_id, now):
        return False
    # One whose deadline has passed needs no place: nothing of it begins any more.
    return deadlines.enforce(tx, run_id, now) or admission.admit(tx, run_id, now)


def _next_suspect(tx: Transaction, worker_id: str, wanted: Wanted, now: float) -> list[str]:
    tx.flush()
    if has_suspect(tx.connection, worker_id):
        return []
    found = [
        tx.execute(SUSPECT, (workflow, now, wanted.versions.get(workflow))).fetchone()
        for workflow in wanted.workflows
    ]
    waiting = sorted((due_at, str(run_id)) for run_id, due_at in filter(None, found))
    return [run_id for _, run_id in waiting[:1]]


def held(connection: Connection, worker_id: str) -> list[Claim]:
    """The runs that a worker owns, as it has claimed them."""
    found: list[Claim] = []
    for run_id, fence, crashes, began in connection.execute(HELD, (worker_id,)).fetchall():
        run = queries.get(connection, run_id)
        assert run is not None, run_id
        found.append(Claim(replace(run, started_at=float(began)), fence, crashes))
    return found


def has_suspect(connection: Connection, worker_id: str) -> bool:
    """Whether the worker has a run in hand that may be its death, and has not got on yet."""
    suspects = connection.execute(SUSPECTS_IN_HAND, (worker_id,)).fetchall()
    return any(not _got_on(connection, run_id, claim_seq) for run_id, claim_seq in suspects)


def _got_on(connection: Connection, run_id: str, claim_seq: int) -> bool:
    return connection.execute(PROGRESS, (run_id, claim_seq, *COMPLETIONS)).fetchone()[0] > 0


def _bury(tx: Transaction, worker_id: str, now: float) -> None:
    """Free the runs of a worker that is gone, and count what that says about them."""
    tx.flush()
    for run_id, _workflow, claim_seq in tx.execute(OWNED, (worker_id,)).fetchall():
        got_on = _got_on(tx.connection, run_id, claim_seq)
        sql = "SELECT crashes FROM runs WHERE id = ?"
        crashes = 0 if got_on else tx.execute(sql, (run_id,)).fetchone()[0]
        tx.execute(ORPHAN, (now, crashes + 1, run_id))
        tx.due = True
    tx.execute("DELETE FROM workers WHERE id = ?", (worker_id,))
    tx.leased.discard(worker_id)


def _take(tx: Transaction, run: Run, worker: Worker, now: float) -> Claim:
    last = tx.last_seq.get(run.id) or tx.execute(LAST_SEQ, (run.id,)).fetchone()[0]
    fence, crashes, began = tx.execute(TAKE, (worker.id, last, now, now, run.id)).fetchone()
    # RETURNING gives a whole number of seconds as an int, and events are hashed by their text.
    return Claim(replace(run, started_at=float(began)), fence, crashes)


def release(tx: Transaction, run_id: str, fence: int, due_at: float | None, now: float) -> bool:
    """Give a run back until `due_at`, or until mail comes; False if it was no longer ours."""
    if tx.execute("SELECT 1 FROM inbox WHERE run_id = ? LIMIT 1", (run_id,)).fetchone():
        due_at = now
    tx.flush()
    released = tx.execute(RELEASE, (due_at, run_id, fence)).rowcount == 1
    tx.due = tx.due or (released and due_at is not None)
    return released


def retire(tx: Transaction, worker_id: str, now: float) -> None:
    """A worker stops by its own will: its runs are free at once, and no crash is counted."""
    tx.flush()
    if tx.execute(RETIRE, (now, worker_id)).rowcount:
        tx.due = True
    tx.execute("DELETE FROM workers WHERE id = ?", (worker_id,))
    tx.leased.discard(worker_id)


def next_due(
    connection: Connection, worker_id: str, workflows: Sequence[str], versions: Mapping[str, str]
) -> float | None:
    """When the next run that this worker could claim is due."""
    suspects = not has_suspect(connection, worker_id)
    found = [
        connection.execute(NEXT_DUE, (name, suspects, versions.get(name))).fetchone()
        for name in workflows
    ]
    moments = [row[0] for row in found if row is not None]
    moments += deadlines.of_parked(connection, workflows)
    return min([*moments, *admission.next_look(connection, workflows)], default=None)
