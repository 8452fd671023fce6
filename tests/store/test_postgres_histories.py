"""Histories of several machines on a store in PostgreSQL, recorded and checked for linearizability.

Meanwhile the server ends their connections again and again, in the middle of transactions and of
commits: what is told to a client has happened, once, at some moment while it waited.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import psycopg
import pytest

import postgres_server
from holdfast.errors import ApprovalRefused, LeaseLost, StoreError
from holdfast.records import STEP_STARTED
from holdfast.store.base import Append
from holdfast.store.postgres.claims import Claiming
from holdfast.store.postgres.database import PostgresDatabase
from holdfast.store.postgres.url import PostgresUrl
from holdfast.store.sqlite import approvals, leases, mailbox
from holdfast.store.sqlite.database import Own, Transaction
from holdfast.store.sqlite.journal import Appending
from holdfast.testing.store_conformance.approvals import approval, verdict
from holdfast.testing.store_conformance.records import event, new_run, worker
from linearizability import Operation, order

MACHINES, RUNS, ASKED = 3, 3, 30

pytestmark = pytest.mark.skipif(postgres_server.programs() is None, reason=postgres_server.MISSING)


class Owned(NamedTuple):
    """A run, as the model has it."""

    owner: str | None = None
    fence: int = 0
    length: int = 1


def step(run: Owned, asked: Operation) -> Owned | None:
    """What an operation makes of a run; None: it can't have had its result."""
    if asked.name == "claim":
        if asked.result is None:
            return run  # rows that another has locked are passed over
        taken = run.owner is None and asked.result == run.fence + 1
        return Owned(asked.client, run.fence + 1, run.length) if taken else None
    if asked.name == "append":
        fence, seq = asked.given
        if asked.result == "lost":
            return run if fence != run.fence else None
        if asked.result == "gap":
            return run if fence == run.fence and seq != run.length + 1 else None
        fits = fence == run.fence and seq == run.length + 1
        return run._replace(length=seq) if fits else None
    if asked.name == "release":
        ours = asked.given == run.fence
        if not asked.result:
            return None if ours else run
        return Owned(None, run.fence + 1, run.length) if ours else None
    assert asked.name == "read"
    return run if asked.result == (run.owner, run.fence, run.length) else None


def once(winner: str | None, asked: Operation) -> str | None:
    """Of something that one may do, and all others are told so: "" before."""
    if asked.result == "done":
        return asked.client if winner == "" else None
    return winner if winner else None


class Recorded:
    """A machine: its connections, and what it was told."""

    def __init__(self, url: PostgresUrl, name: str) -> None:
        self.name = name
        self.database = PostgresDatabase(url)
        self.history: dict[str, list[Operation]] = {}
        self.luck = random.Random(name)
        self.asked = 0

    def ask(self, of: str, name: str, given: Any, do: Callable[[], Any]) -> Any:
        self.asked += 1
        began = time.monotonic()
        result = do()
        asked = Operation(self.name, name, given, result, began, time.monotonic())
        self.history.setdefault(of, []).append(asked)
        return result

    def write(self, operation: Callable[[Transaction], Any]) -> Any:
        return self.database.write(operation).result()

    # --- of a run ---

    def claim(self, run: str) -> int | None:
        def do() -> int | None:
            now = self.database.clock.now()
            moment = leases.Moment(now, now, "database")
            wanted = leases.Wanted([f"flow_{run}"], 1, {})
            found = self.write(Claiming(worker(self.name), wanted, moment, []))
            return found[0].fence if found else None

        return self.ask(run, "claim", None, do)

    def append(self, run: str, fence: int, seq: int) -> str:
        made = event(seq, STEP_STARTED, f"0/{seq}", of=run, name="s")
        appending = Appending(Append(run, fence, [made], lambda _append, _error: None))

        def do() -> str:
            try:
                self.write(appending)
            except LeaseLost:
                return "lost"
            except StoreError as error:
                assert "does not follow" in str(error)
                return "gap"
            return "done"

        return self.ask(run, "append", (fence, seq), do)

    def release(self, run: str, fence: int) -> bool:
        operation = Own((run,), lambda tx: leases.release(tx, run, fence, 1.0, 1.0))
        return self.ask(run, "release", fence, lambda: self.write(operation))

    def read(self, run: str) -> tuple[str | None, int, int]:
        sql = """SELECT owner, fence, (SELECT max(seq) FROM events WHERE run_id = runs.id)
        FROM runs WHERE id = ?"""

        def do() -> tuple[str | None, int, int]:
            return tuple(self.database.read(lambda c: c.execute(sql, (run,)).fetchone()).result())

        return self.ask(run, "read", None, do)

    def work(self, runs: list[str]) -> None:
        """Claim runs, write to them, give them back; now and then with what is no longer true."""
        for number in range(ASKED):
            run = self.luck.choice(runs)
            _owner, fence, length = self.read(run)
            kind = self.luck.random()
            if kind < 0.35:
                self.claim(run)
            elif kind < 0.8:
                self.append(run, fence - (kind > 0.75), length + 1)
            else:
                self.release(run, fence)
            if number % 10 == 0:
                self.decide(f"apr_{number}")
                self.send(f"evt_{number}")

    # --- what one may do ---

    def decide(self, id: str) -> None:
        def do() -> str:
            try:
                self.write(lambda tx: approvals.decide(tx, id, verdict(by=self.name)))
            except ApprovalRefused:
                return "refused"
            return "done"

        self.ask(id, "decide", None, do)

    def send(self, id: str) -> None:
        def do() -> str:
            sent = self.write(lambda tx: mailbox.send(tx, "go", b"{}", id, None, 1.0))
            return "done" if sent else "known"

        self.ask(id, "send", None, do)


def disturb(url: PostgresUrl, machines: list[Recorded], over: threading.Event) -> int:
    """End everybody's connections, once in a while of what they do."""
    ended = seen = 0
    sql = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE application_name = 'holdfast' AND pid <> pg_backend_pid()"""
    with psycopg.connect(url.conninfo, autocommit=True, application_name="unrest") as session:
        while not over.wait(0.001):
            done = sum(machine.asked for machine in machines)
            if done >= seen + 12:
                seen = done
                ended += (session.execute(sql).fetchone() or (0,))[0]
    return ended


def test_what_several_machines_were_told_could_have_happened_one_after_the_other() -> None:
    url = PostgresUrl.parse(postgres_server.fresh_url())
    machines = [Recorded(url, f"wkr_{number}") for number in range(MACHINES)]
    runs = [f"run_{number}" for number in range(RUNS)]
    over = threading.Event()
    try:
        for run in runs:
            new = new_run(run, workflow=f"flow_{run}")
            machines[0].write(lambda tx, new=new: leases.create(tx, new, None, _moment()))
        for number in range(0, ASKED, 10):
            asked = approval(f"apr_{number}", run_id=runs[0], expires_at=9e11)
            machines[0].write(lambda tx, asked=asked: approvals.add(tx, asked))
        with ThreadPoolExecutor(MACHINES + 1) as threads:
            unrest = threads.submit(disturb, url, machines, over)
            working = [threads.submit(machine.work, runs) for machine in machines]
            try:
                for each in working:
                    each.result()
            finally:
                over.set()
            assert unrest.result() > 0, "nothing was disturbed"
    finally:
        for machine in machines:
            machine.database.close()
    histories: dict[str, list[Operation]] = {}
    for machine in machines:
        for of, asked in machine.history.items():
            histories.setdefault(of, []).extend(asked)
    for run in runs:
        assert order(histories[run], Owned(), step) is not None, histories[run]
        assert {each.name for each in histories[run]} == {"read", "claim", "append", "release"}
    for of in set(histories) - set(runs):
        assert order(histories[of], "", once) is not None, histories[of]


def _moment() -> leases.Moment:
    return leases.Moment(1.0, 1.0, "database")


# --- the checker itself ---


def recorded(*asked: tuple[str, str, Any, Any, float, float]) -> list[Operation]:
    return [Operation(*each) for each in asked]


def test_a_history_with_two_owners_of_one_fence_is_refused() -> None:
    history = recorded(
        ("a", "claim", None, 1, 0.0, 2.0),
        ("b", "claim", None, 1, 1.0, 3.0),
    )
    assert order(history, Owned(), step) is None


def test_a_history_that_forgets_what_was_acknowledged_is_refused() -> None:
    history = recorded(
        ("a", "claim", None, 1, 0.0, 1.0),
        ("a", "append", (1, 2), "done", 2.0, 3.0),
        ("b", "read", None, ("a", 1, 1), 4.0, 5.0),
    )
    assert order(history, Owned(), step) is None
    overlapping = [*history[:2], history[2].__class__("b", "read", None, ("a", 1, 1), 2.5, 5.0)]
    found = order(overlapping, Owned(), step)
    assert found is not None and [each.name for each in found] == ["claim", "read", "append"]


def test_something_done_twice_is_refused() -> None:
    twice = recorded(("a", "send", None, "done", 0.0, 1.0), ("b", "send", None, "done", 2.0, 3.0))
    assert order(twice, "", once) is None
