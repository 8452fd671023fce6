"""Admission: which runs may begin, under the limits of their workflow and of their lane in it.

A limit of concurrency is about runs under way: admitted and not ended. One that sleeps, or was
paused on its way, keeps its place. Nothing begins without a place: whichever way a run comes (made,
delayed, resumed, retried, forked), `admit` is asked before it is handed to a worker. One that is
due and finds no place is `queued`; the end of another admits the next that fits. A run that is not
due yet, or was paused before it had a place, holds none.

A pace is about runs that begin: in any stretch of time no more than it says. Such a run is always
queued, and begins in the transaction in which a worker takes it, so that workers that were away
do not begin at once what was let in meanwhile. `next_turns` says when to look at a queue again.

Lanes take turns: of those that have a run which may begin, the one that began one longest ago is
first, however many another has in the queue. In a lane, whoever came first, less its priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.errors import TooManyRequests
from holdfast.records import Status
from holdfast.records.flow import Pace, QueuePlace, Rate, StartRate
from holdfast.store.connection import Connection
from holdfast.store.sqlite.database import Transaction

UNDER_WAY = """
SELECT count(*) FROM runs WHERE workflow = ? AND (run_limit IS NOT NULL OR lane_limit IS NOT NULL)
  AND admitted = 1 AND finished_at IS NULL
"""
UNDER_WAY_IN_LANE = UNDER_WAY + " AND lane = ?"
# From lane to lane by index, for there may be thousands of runs in each. The last lane that is
# found is NULL: that of the runs without one.
FIRST_OF_LANES = """
WITH RECURSIVE
  flow (name) AS (VALUES (?)),
  lanes (lane) AS (
    SELECT (SELECT min(lane) FROM runs
            WHERE workflow = (SELECT name FROM flow) AND status = 'queued')
    UNION ALL
    SELECT (SELECT min(lane) FROM runs
            WHERE workflow = (SELECT name FROM flow) AND status = 'queued' AND lane > lanes.lane)
    FROM lanes WHERE lanes.lane IS NOT NULL
  )
SELECT r.id, r.version, r.workflow, r.run_limit, r.lane, r.lane_limit, r.pace FROM lanes, runs r
WHERE r.id = (SELECT id FROM runs WHERE workflow = (SELECT name FROM flow)
              AND status = 'queued' AND lane IS lanes.lane ORDER BY queue_at, rowid LIMIT 1)
ORDER BY coalesce((SELECT max(t.id) FROM turns t WHERE t.workflow = r.workflow
                   AND t.kind = 'begun' AND t.lane = coalesce(r.lane, '')), 0), r.queue_at, r.rowid
"""
LIMITS = "SELECT admitted, workflow, run_limit, lane, lane_limit, pace FROM runs WHERE id = ?"
ENTER = """
UPDATE runs SET status = ?, admitted = ?, due_at = ?, owner = NULL, error = NULL,
  finished_at = NULL, crashes = 0
WHERE id = ?
"""
ADMIT = """
UPDATE runs SET status = 'pending', admitted = 1, due_at = max(coalesce(due_at, ?), ?)
WHERE id = ?
"""
TURN = "INSERT INTO turns (workflow, kind, lane, at, until) VALUES (?, ?, ?, ?, ?)"
SPENT = "DELETE FROM turns WHERE workflow = ? AND kind = ? AND lane = ? AND until <= ?"
LONG_SPENT = "DELETE FROM turns WHERE until <= ?"
OTHERS_SECONDS = 1.0
KEPT_SECONDS = 86400.0
"""How long it is known when a lane that has nothing to do had its last turn."""
NTH = "SELECT at FROM turns WHERE workflow = ? AND kind = ? ORDER BY id DESC LIMIT 1 OFFSET ?"
NTH_OF_LANE = """
SELECT at FROM turns WHERE workflow = ? AND kind = ? AND lane = ? ORDER BY id DESC LIMIT 1 OFFSET ?
"""
NOT_AFTER = "UPDATE turns SET at = ?, until = until - (at - ?) WHERE at > ?"
LOOK = """
INSERT INTO next_turns (workflow, at) VALUES (?, ?)
ON CONFLICT (workflow) DO UPDATE SET at = min(next_turns.at, excluded.at)
"""
LOOK_AT = "SELECT workflow, at FROM next_turns"
LOOKED = "DELETE FROM next_turns WHERE workflow = ?"
QUEUED_PLACE = """
SELECT workflow, run_limit, lane, lane_limit, pace, queue_at, rowid, status, due_at, gather
FROM runs WHERE id = ?
"""
AHEAD = """
SELECT count(*) FROM runs WHERE workflow = ? AND status = 'queued'
  AND (queue_at < ? OR (queue_at = ? AND rowid < ?))
"""
AHEAD_IN_LANE = AHEAD + " AND lane = ?"


class Limits(NamedTuple):
    """What a run has to keep to."""

    workflow: str
    run_limit: int | None
    lane: str | None
    lane_limit: int | None
    pace: str | None

    @property
    def any(self) -> bool:
        return not (self.run_limit is None and self.lane_limit is None and self.pace is None)

    @property
    def rates(self) -> Pace:
        return Pace() if self.pace is None else Pace.of_text(self.pace)


def has_place(connection: Connection, limits: Limits) -> bool:
    """Whether the limits of concurrency allow one more."""
    workflow, run_limit, lane, lane_limit, _ = limits
    if run_limit is not None and _count(connection, UNDER_WAY, (workflow,)) >= run_limit:
        return False
    if lane is None or lane_limit is None:
        return True
    return _count(connection, UNDER_WAY_IN_LANE, (workflow, lane)) < lane_limit


def _count(connection: Connection, sql: str, parameters: tuple[str, ...]) -> int:
    return int(connection.execute(sql, parameters).fetchone()[0])


# --- rates ---


def _free_at(connection: Connection, rate: Rate | None, sql: str, which: tuple[str, ...]) -> float:
    """From when on one more keeps to the rate: once the one so many before it counts no more."""
    if rate is None:
        return 0.0
    found = connection.execute(sql, (*which, rate.limit - 1)).fetchone()
    return 0.0 if found is None else float(found[0]) + rate.seconds


def _workflow_free_at(connection: Connection, limits: Limits) -> float:
    return _free_at(connection, limits.rates.all, NTH, (limits.workflow, "begun"))


def _lane_free_at(connection: Connection, limits: Limits) -> float:
    if limits.lane is None:
        return 0.0
    which = (limits.workflow, "begun", limits.lane)
    return _free_at(connection, limits.rates.lane, NTH_OF_LANE, which)


def _take_turn(
    tx: Transaction, workflow: str, kind: str, lane: str, at: float, ends: float
) -> None:
    tx.execute(SPENT, (workflow, kind, lane, at))
    tx.execute(LONG_SPENT, (at - KEPT_SECONDS,))
    tx.execute(TURN, (workflow, kind, lane, at, ends))


def _begin(tx: Transaction, limits: Limits, at: float) -> None:
    """Note that a run begins, where somebody will ask."""
    if limits.pace is not None or limits.lane is not None:
        lasts = 0.0 if limits.pace is None else limits.rates.seconds
        _take_turn(tx, limits.workflow, "begun", limits.lane or "", at, at + lasts)


def count_start(tx: Transaction, workflow: str, rates: Sequence[StartRate], at: float) -> None:
    """Count a start from outside, or refuse it."""
    for key, rate in rates:
        free = _free_at(tx.connection, rate, NTH_OF_LANE, (workflow, "started", key))
        if free > at:
            raise TooManyRequests(
                f"{rate.limit} runs of {workflow} were started in the last {rate.seconds:g} s",
                hint=f"the next may be started in {free - at:.1f} s",
                retry_after=free - at,
            )
    for key, rate in rates:
        _take_turn(tx, workflow, "started", key, at, at + rate.seconds)


def set_back(tx: Transaction, now: float) -> None:
    """The wall clock was set back: what has begun has begun by now."""
    tx.execute(NOT_AFTER, (now, now, now))
    tx.execute("UPDATE next_turns SET at = ? WHERE at > ?", (now, now))


# --- coming in ---


def place_for(tx: Transaction, limits: Limits, due_at: float, now: float) -> tuple[Status, bool]:
    """How a run that has not begun comes in: its status, and whether it has a place."""
    if not limits.any:
        return "pending", True
    if due_at > now:
        return "pending", False
    if limits.pace is not None:
        _look_at_queue(tx, limits.workflow, now)
        return "queued", False
    admitted = has_place(tx.connection, limits)
    if admitted:
        _begin(tx, limits, now)
    return ("pending" if admitted else "queued"), admitted


def enter(tx: Transaction, run_id: str, due_at: float, now: float) -> None:
    """Let a run come in (again) that has not begun: as a new one would, due at its moment."""
    admitted, *limits = tx.execute(LIMITS, (run_id,)).fetchone()
    due_at = max(due_at, now)
    status, has_place = "pending", bool(admitted)
    if not has_place:
        status, has_place = place_for(tx, Limits(*limits), due_at, now)
    tx.execute(ENTER, (status, has_place, due_at, run_id))
    tx.due = True


def admit(tx: Transaction, run_id: str, now: float) -> bool:
    """Whether a run that is due may begin; if there is no place for it, it is queued."""
    admitted, *found = tx.execute(LIMITS, (run_id,)).fetchone()
    if admitted:
        return True
    limits = Limits(*found)
    if limits.pace is None and has_place(tx.connection, limits):
        tx.execute("UPDATE runs SET admitted = 1 WHERE id = ?", (run_id,))
        _begin(tx, limits, now)
        return True
    tx.execute("UPDATE runs SET status = 'queued' WHERE id = ?", (run_id,))
    if limits.pace is not None:
        _look_at_queue(tx, limits.workflow, now)
    return False


def _look_at_queue(tx: Transaction, workflow: str, at: float) -> None:
    tx.execute(LOOK, (workflow, at))
    tx.due = True


def admit_next(tx: Transaction, ended: str, at: float) -> None:
    """A run has ended: let queued ones of its workflow in, as far as they fit."""
    _, *found = tx.execute(LIMITS, (ended,)).fetchone()
    limits = Limits(*found)
    if limits.run_limit is None and limits.lane_limit is None:
        return
    for run_id, _, *found in tx.execute(FIRST_OF_LANES, (limits.workflow,)).fetchall():
        next_up = Limits(*found)
        if next_up.pace is not None:
            _look_at_queue(tx, limits.workflow, at)
        elif has_place(tx.connection, next_up):
            _begin(tx, next_up, at)
            tx.execute(ADMIT, (at, at, run_id))
            tx.due = True


def next_of_queues(
    tx: Transaction, versions: Sequence[tuple[str, str | None]], number: int, now: float
) -> list[str]:
    """The runs that a worker may begin now of those that keep a pace; they are begun with that.

    `versions`: the workflows it knows, and which version of them it takes, if not any.
    """
    known = dict(versions)
    begun: list[str] = []
    for workflow, at in tx.execute(LOOK_AT).fetchall():
        if workflow in known and at <= now and len(begun) < number:
            begun += _next_of(tx, workflow, known[workflow], number - len(begun), now)
    return begun


def _next_of(
    tx: Transaction, workflow: str, version: str | None, number: int, now: float
) -> list[str]:
    begun: list[str] = []
    tx.execute(LOOKED, (workflow,))
    while True:
        again, moments = False, list[float]()
        for run_id, its_version, *found in tx.execute(FIRST_OF_LANES, (workflow,)).fetchall():
            limits = Limits(*found)
            if limits.pace is None or not has_place(tx.connection, limits):
                continue  # the end of another admits it, or has it looked at again
            free = _workflow_free_at(tx.connection, limits)
            if free > now:
                moments.append(free)
                break  # so it is for all others
            free = _lane_free_at(tx.connection, limits)
            if (version or its_version) != its_version:
                # For another worker, who was told of it when it came.
                free = max(free, now + OTHERS_SECONDS)
            if free > now or len(begun) == number:
                moments.append(max(free, now))
                continue
            tx.execute(ADMIT, (now, now, run_id))
            _begin(tx, limits, now)
            begun.append(str(run_id))
            again = True
        if not again:
            break
    if moments:
        tx.execute(LOOK, (workflow, min(moments)))
    return begun


def next_look(connection: Connection, workflows: Sequence[str]) -> list[float]:
    """When the queues of these workflows have to be looked at."""
    return [at for name, at in connection.execute(LOOK_AT).fetchall() if name in set(workflows)]


# --- why a run waits ---


def queue_place(connection: Connection, run_id: str) -> QueuePlace | None:
    """Why a run has not begun, if it is its flow control that holds it."""
    found = connection.execute(QUEUED_PLACE, (run_id,)).fetchone()
    if found is None:
        return None
    *limited, queue_at, rowid, status, due_at, gather = found
    limits = Limits(*limited)
    if status == "pending" and gather is not None:
        return QueuePlace("gathering", 0, limits.lane, due_at)
    if status != "queued":
        return None
    place = (limits.workflow, queue_at, queue_at, rowid)
    if limits.lane is None:
        ahead = int(connection.execute(AHEAD, place).fetchone()[0])
    else:
        ahead = int(connection.execute(AHEAD_IN_LANE, (*place, limits.lane)).fetchone()[0])
    if limits.pace is None or not has_place(connection, limits):
        return QueuePlace("places", ahead, limits.lane)
    free = max(_workflow_free_at(connection, limits), _lane_free_at(connection, limits))
    return QueuePlace("rate", ahead, limits.lane, free or None)
