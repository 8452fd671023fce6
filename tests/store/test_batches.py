"""Operations of one batch: what is looked up, written or renewed once for several of them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.errors import HoldfastError, LeaseLost
from holdfast.records import (
    CHILD_DROPPED,
    CHILD_STARTED,
    RUN_COMPLETED,
    STEP_STARTED,
    WEBHOOK_CREATED,
    Event,
    Worker,
)
from holdfast.store.base import Append, Claim, Created, NewRun
from holdfast.store.sqlite import events, leases
from holdfast.store.sqlite.database import Operation, Transaction, commit
from holdfast.store.sqlite.journal import Appending
from holdfast.store.sqlite.memory import MemoryDatabase

NOW = leases.Moment(10.0, 10.0, "boot")


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    opened = MemoryDatabase().connection
    yield opened
    opened.close()


def batch(connection: sqlite3.Connection, *operations: Operation) -> list[Any]:
    """What each operation of one transaction has given, or the error it was refused with."""
    results, _ = commit(
        connection, [(each, lambda _value, _error: None) for each in operations], ""
    )
    return [value if error is None else error for _, value, error in results]


def worker(name: str) -> Worker:
    return Worker(name, 1, "here", 1.0, 0.0, lease_seconds=30)


def creates(run_id: str, by: str | None = "wkr_1", **fields: Any) -> Operation:
    given: dict[str, Any] = {"created_at": 1.0, "due_at": 1.0, **fields}
    new = NewRun(run_id, "flow", "1", b"{}", {"seed": run_id}, **given)
    return lambda tx: leases.create(tx, new, None if by is None else worker(by), NOW)


def claims(by: str, *, lost: str) -> Operation:
    return lambda tx: leases.claim(tx, worker(by), leases.Wanted(["flow"], 10), NOW, [lost])


def appends(run_id: str, fence: int, *events: Event) -> Operation:
    return Appending(Append(run_id, fence, list(events), lambda _append, _error: None))


def step(run_id: str, seq: int) -> Event:
    return Event(run_id, seq, STEP_STARTED, f"0/{seq}", 10.0, '{"name": "a"}', b"{}")


def claim_of(created: Created) -> Claim:
    assert created.claim is not None
    return created.claim


def test_the_fences_of_a_batch_are_looked_up_in_one_query(connection: sqlite3.Connection):
    ids = [f"run_{number}" for number in range(100)]
    batch(connection, *(creates(run_id) for run_id in ids))
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    assert (
        batch(connection, *(appends(run_id, 1, step(run_id, 2)) for run_id in ids)) == [None] * 100
    )
    connection.set_trace_callback(None)
    assert sum("fence" in statement for statement in asked) == 1
    assert [events.load(connection, run_id)[-1].seq for run_id in ids] == [2] * 100


def test_an_append_behind_one_that_gave_the_run_away_is_refused(connection: sqlite3.Connection):
    batch(connection, creates("run_1"), creates("run_2"))

    def gives_back(tx: Transaction) -> bool:
        return leases.release(tx, "run_1", 1, None, 10.0)

    first, other, released, late, after = batch(
        connection,
        appends("run_1", 1, step("run_1", 2)),
        appends("run_2", 1, step("run_2", 2)),
        gives_back,
        appends("run_1", 1, step("run_1", 3)),
        appends("run_2", 1, step("run_2", 3)),
    )
    assert (first, other, released, after) == (None, None, True, None)
    assert isinstance(late, LeaseLost)
    assert [event.seq for event in events.load(connection, "run_1")] == [1, 2]
    assert [event.seq for event in events.load(connection, "run_2")] == [1, 2, 3]


def test_an_append_behind_another_runs_that_has_changed_its_run_is_refused(
    connection: sqlite3.Connection,
):
    """The parent drops its child, which nobody has: that raises the child's fence."""
    batch(connection, creates("run_1"))
    child = {
        "id": "run_2",
        "workflow": "flow",
        "version": "1",
        "input": "{}",
        "meta": {"seed": "x"},
    }
    facts = json.dumps({"name": "flow", "run": {**child, "parent_id": "run_1"}})
    started = Event("run_1", 2, CHILD_STARTED, "0/1", 10.0, facts, b"{}")
    assert batch(connection, appends("run_1", 1, started)) == [None]
    dropped = Event("run_1", 3, CHILD_DROPPED, "0/1", 10.0, '{"name": "flow", "run_id": "run_2"}')
    told, late = batch(
        connection, appends("run_1", 1, dropped), appends("run_2", 0, step("run_2", 2))
    )
    assert told is None
    assert isinstance(late, LeaseLost)
    assert events.last_event(connection, "run_2").type == "run.cancelled"


def test_more_events_than_one_statement_takes_are_all_there(connection: sqlite3.Connection):
    batch(connection, creates("run_1"), creates("run_2"))
    many = [step("run_1", seq) for seq in range(2, 78)]
    assert batch(connection, appends("run_1", 1, *many), appends("run_2", 1, step("run_2", 2))) == [
        None,
        None,
    ]
    assert [event.seq for event in events.load(connection, "run_1")] == list(range(1, 78))
    assert [event.seq for event in events.load(connection, "run_2")] == [1, 2]


def test_a_new_run_is_its_makers_as_if_it_had_been_claimed(connection: sqlite3.Connection):
    columns = "status, owner, fence, claim_seq, crashes, due_at, started_at, begun_at, admitted"
    rows: list[Any] = []
    for name, operations in {
        "run_1": [creates("run_1")],
        "run_2": [creates("run_2", None), claims("wkr_1", lost="nobody")],
    }.items():
        batch(connection, *operations)
        sql = f"SELECT {columns} FROM runs WHERE id = ?"
        rows.append(connection.execute(sql, (name,)).fetchone())
    assert rows[0] == rows[1] == ("running", "wkr_1", 1, 1, 0, None, 10.0, 10.0, 1)


def test_a_run_without_a_place_is_not_its_makers(connection: sqlite3.Connection):
    """It was not due when it was made, so it has no place yet; and it is due by now."""
    first, late = batch(
        connection,
        creates("run_1", run_limit=1),
        creates("run_2", run_limit=1, due_at=5.0),
    )
    assert claim_of(first).fence == 1
    assert late.claim is None
    assert batch(connection, claims("wkr_2", lost="nobody")) == [[]]
    found = connection.execute("SELECT status FROM runs WHERE id = 'run_2'").fetchone()
    assert found == ("queued",)


def test_a_worker_that_was_taken_for_dead_in_the_same_batch_has_its_row_again(
    connection: sqlite3.Connection,
):
    """Without a row nobody would find out that it is gone, and take its new run over."""
    batch(connection, creates("run_1"), claims("wkr_2", lost="wkr_1"), creates("run_2"))
    owners = dict(connection.execute("SELECT id, owner FROM runs").fetchall())
    assert owners == {"run_1": "wkr_2", "run_2": "wkr_1"}
    workers = {row[0] for row in connection.execute("SELECT id FROM workers")}
    assert workers == {"wkr_1", "wkr_2"}


def test_a_lease_is_written_once_in_a_batch(connection: sqlite3.Connection):
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    batch(connection, *(creates(f"run_{number}") for number in range(20)))
    connection.set_trace_callback(None)
    assert sum("INTO workers" in statement for statement in asked) == 1


def test_the_end_of_a_run_takes_along_what_belongs_to_it_alone(connection: sqlite3.Connection):
    batch(connection, creates("run_1"), creates("run_2"))
    hook = '{"name": "@webhook/0/1", "token": "%s"}'
    for run_id in ("run_1", "run_2"):
        made = Event(run_id, 2, WEBHOOK_CREATED, "0/1", 10.0, hook % run_id)
        assert batch(connection, appends(run_id, 1, made)) == [None]
    assert batch(connection, appends("run_1", 1, Event("run_1", 3, RUN_COMPLETED, "", 10.0))) == [
        None
    ]
    assert connection.execute("SELECT run_id FROM webhooks").fetchall() == [("run_2",)]


def test_a_refused_append_is_told_apart_from_the_rest(connection: sqlite3.Connection):
    batch(connection, creates("run_1"))
    found = batch(
        connection, appends("run_9", 1, step("run_9", 2)), appends("run_1", 1, step("run_1", 2))
    )
    assert isinstance(found[0], HoldfastError)
    assert found[1] is None
