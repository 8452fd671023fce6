"""What SQLite's single writer kept apart by itself, forced to happen at once in PostgreSQL.

Two databases on one store stand for two machines. The first is held in the middle of its
transaction until the second has come as far as it can: to a lock, or, where there is none to stop it,
to its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

import psycopg
import pytest

import postgres_server
from holdfast.errors import ApprovalRefused, HoldfastError, LeaseLost
from holdfast.records import STEP_STARTED, Event
from holdfast.store.base import Append
from holdfast.store.postgres import sharing
from holdfast.store.postgres.claims import Claiming
from holdfast.store.postgres.connection import PostgresConnection
from holdfast.store.postgres.database import PostgresDatabase
from holdfast.store.postgres.url import PostgresUrl
from holdfast.store.sqlite import approvals, events, leases, mailbox, projections, queries
from holdfast.store.sqlite.database import Apart, Own, Transaction
from holdfast.store.sqlite.journal import Appending
from holdfast.testing.store_conformance.approvals import approval, verdict
from holdfast.testing.store_conformance.records import event, new_run, wait_for, worker
from waiting import LIMIT, until

T = TypeVar("T")

pytestmark = pytest.mark.skipif(postgres_server.programs() is None, reason=postgres_server.MISSING)


class Machines:
    """Two machines on one store."""

    def __init__(self, url: PostgresUrl) -> None:
        self.url = url
        self.one, self.two = PostgresDatabase(url), PostgresDatabase(url)

    def moment(self) -> leases.Moment:
        now = self.one.clock.now()
        return leases.Moment(now, now, "database")

    def at_once(
        self, first: Callable[[Transaction], Any], second: Callable[[Transaction], Any]
    ) -> tuple[Any, Any]:
        """Both; the second begins when the first has decided and not committed."""
        held = Held(first)
        if isinstance(first, Appending):
            held = HeldAppend(first.append)
        one = self.one.write(Own(first.runs, held) if isinstance(first, Own) else held)
        assert held.decided.wait(LIMIT)
        two = self.two.write(second)
        until(lambda: two.done() or self.someone_waits(), "the second to come to a lock")
        held.go_on.set()
        return outcome(one), outcome(two)

    def someone_waits(self) -> bool:
        with psycopg.connect(self.url.conninfo, autocommit=True) as connection:
            row = connection.execute(
                "SELECT count(*) FROM pg_locks WHERE NOT granted"
                " AND locktype IN ('advisory', 'transactionid', 'tuple')"
            ).fetchone()
        return row is not None and row[0] > 0

    def ask(self, sql: str, *values: Any) -> list[Any]:
        return self.one.read(lambda c: c.execute(sql, values).fetchall()).result()

    def close(self) -> None:
        self.one.close()
        self.two.close()


class Held:
    """An operation that stays in its transaction for a while."""

    def __init__(self, operation: Callable[[Transaction], Any]) -> None:
        self.operation = operation
        self.decided, self.go_on = threading.Event(), threading.Event()

    def __call__(self, tx: Transaction) -> Any:
        value = self.operation(tx)
        self.decided.set()
        assert self.go_on.wait(LIMIT)
        return value


class HeldAppend(Held, Appending):
    """An append that stays in its transaction, with the lock shared."""

    def __init__(self, append: Append) -> None:
        Held.__init__(self, Appending(append))
        self.append = append


class HeldCreate(Held, leases.Creating):
    """A start that stays in its transaction, with the lock shared, before it writes."""

    def __init__(self, creating: leases.Creating) -> None:
        Held.__init__(self, creating)
        self.new, self.worker, self.moment = creating.new, creating.worker, creating.moment


def outcome(future: Future[Any]) -> Any:
    """What came of it: a value, or a refusal."""
    try:
        return future.result(LIMIT)
    except HoldfastError as refusal:
        return refusal


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    # Whoever is held here is held for as long as the other takes, at whatever pace.
    monkeypatch.setattr("holdfast.store.postgres.database.IDLE_SECONDS", 0)
    found = Machines(PostgresUrl.parse(postgres_server.fresh_url()))
    yield found
    found.close()


def started(machines: Machines, name: str = "run_1", **options: Any) -> leases.Created:
    creating = leases.Creating(new_run(name, **options), worker(), machines.moment)
    return machines.one.write(creating).result(LIMIT)


def appending(run_id: str, fence: int, *given: Event) -> Append:
    return Append(run_id, fence, list(given), lambda _append, _error: None)


def step(seq: int, of: str = "run_1") -> Event:
    return event(seq, STEP_STARTED, f"0/{seq}", of=of, name="s")


@pytest.mark.parametrize("first", ["the wait", "the event"])
def test_an_event_that_is_sent_while_a_wait_opens_is_not_lost(
    machines: Machines, first: str
) -> None:
    started(machines)

    wait = Appending(appending("run_1", 1, wait_for(2, "0/1", "paid")))
    assert sharing.plan([wait]) is not None, "it shares the lock, and the event does not"

    def send(tx: Transaction) -> None:
        mailbox.send(tx, "paid", b"{}", "evt_1", None, 1.0)

    machines.at_once(*((wait, send) if first == "the wait" else (send, wait)))
    assert machines.ask("SELECT run_id, kind, key FROM inbox") == [("run_1", "event", "0/1")]


def test_a_machine_that_says_nothing_more_does_not_hold_the_others_up(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.postgres.database.IDLE_SECONDS", 1)
    held = Held(lambda tx: mailbox.send(tx, "paid", b"{}", "evt_1", None, 1.0))
    stopped = machines.one.write(held)
    assert held.decided.wait(LIMIT)
    machines.two.write(lambda tx: mailbox.send(tx, "paid", b"{}", "evt_2", None, 1.0)).result(LIMIT)
    assert not stopped.done(), "it is stopped still, in the middle of its transaction"
    held.go_on.set()
    assert stopped.result(LIMIT) is True, "it begins again, on a new connection"
    assert machines.ask("SELECT event_id FROM messages ORDER BY id") == [("evt_2",), ("evt_1",)]


def test_of_two_starts_at_a_limit_of_one_one_is_queued(machines: Machines) -> None:
    def start(name: str) -> Callable[[Transaction], leases.Created]:
        new = new_run(name, run_limit=1)
        return lambda tx: leases.create(tx, new, None, machines.moment())

    one, two = machines.at_once(start("run_1"), start("run_2"))
    assert (one.run.status, two.run.status) == ("pending", "queued")


def test_a_reader_misses_no_event_that_is_committed_late(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("run_1", "run_2"):
        started(machines, name)

    def read(after: int) -> list[Event]:
        return machines.one.read(lambda c: events.read(c, events.OF_ALL_RUNS, (after, 100))).result(
            LIMIT
        )

    [*_, last] = read(0)
    held = HeldAppend(appending("run_1", 1, step(2)))
    early = machines.one.write(held)
    assert held.decided.wait(LIMIT)
    # It shares the lock: the other commits first, with the later number.
    machines.two.write(Appending(appending("run_2", 1, step(2, of="run_2")))).result(LIMIT)
    seen = read(last.log)
    held.go_on.set()
    early.result(LIMIT)
    seen += read(seen[-1].log if seen else last.log)
    assert [each.run_id for each in seen] == ["run_1", "run_2"]


def test_two_who_claim_get_different_runs(machines: Machines) -> None:
    for number in range(6):
        new = new_run(f"run_{number}")
        machines.one.write(leases.Creating(new, None, machines.moment)).result(LIMIT)

    held = Held(claiming(machines, "wkr_1"))
    one = machines.one.write(Own((), held))
    assert held.decided.wait(LIMIT)
    two = machines.two.write(claiming(machines, "wkr_2")).result(LIMIT)
    assert not one.done(), "the second has not waited for the first"
    held.go_on.set()
    taken = [[found.run.id for found in claims] for claims in (one.result(LIMIT), two)]
    assert [len(ids) for ids in taken] == [4, 2]
    assert set(taken[0]).isdisjoint(taken[1])
    assert all(found.run.started_at is not None and found.fence == 1 for found in two)


@pytest.mark.parametrize("special", ["a request", "a limit", "a deadline", "a suspect"])
def test_a_claim_that_meets_more_than_runs_that_may_go_on_is_made_alone(
    machines: Machines, special: str
) -> None:
    options: dict[str, Any] = {"a limit": {"run_limit": 1}, "a deadline": {"timeout": 1.0}}.get(
        special, {}
    )
    names = ["run_1", "run_2"]
    for name in names:
        machines.one.write(leases.Creating(new_run(name, **options), None, machines.moment)).result(
            LIMIT
        )
    if special == "a request":
        machines.one.write(lambda tx: mailbox.request(tx, "run_1", "pause", 1.0)).result(LIMIT)
    if special == "a suspect":
        suspect = "UPDATE runs SET crashes = 2"
        machines.one.write(lambda tx: tx.execute(suspect) and None).result(LIMIT)
    taken = [each.run.id for each in machines.two.write(claiming(machines, "wkr_2")).result(LIMIT)]
    expected = {"a request": ["run_2"], "a deadline": names}.get(special, ["run_1"])
    assert taken == expected, "as in SQLite: a paused run stays, one place, both ended, one suspect"


def wanted(workflow: str) -> leases.Wanted:
    return leases.Wanted([workflow], 4)


def claiming(machines: Machines, name: str, *lost: str) -> Claiming:
    return Claiming(worker(name), wanted("flow"), machines.moment(), lost)


@pytest.mark.parametrize("first", ["the end", "the release"])
def test_a_run_that_is_given_back_while_its_child_ends_is_woken(
    machines: Machines, first: str
) -> None:
    started(machines)
    child: dict[str, Any] = {
        "id": "run_2",
        "workflow": "other",
        "version": "1",
        "input": "{}",
        "meta": {},
    }
    start = Appending(appending("run_1", 1, event(2, "child.started", "0/1", run=child)))
    assert sharing.plan([start]) is not None
    machines.one.write(start).result(LIMIT)
    other = Claiming(worker("wkr_2"), wanted("other"), machines.moment(), [])
    [claimed] = machines.two.write(other).result(LIMIT)

    end = Appending(appending("run_2", claimed.fence, event(2, "run.completed", of="run_2")))
    back = Own(("run_1",), lambda tx: leases.release(tx, "run_1", 1, None, 5.0))
    machines.at_once(*((end, back) if first == "the end" else (back, end)))
    [(due, owner)] = machines.ask("SELECT due_at, owner FROM runs WHERE id = 'run_1'")
    assert owner is None and due is not None, "it has mail: somebody has to look"
    assert machines.ask("SELECT kind, ref FROM inbox") == [("ended", "run_2")]


def test_model_calls_and_claims_do_not_wait_for_one_another(machines: Machines) -> None:
    started(machines)
    held = Held(lambda _tx: None)
    call = machines.one.write(Apart("ledger", held))
    assert held.decided.wait(LIMIT)
    machines.two.write(claiming(machines, "wkr_2")).result(LIMIT)
    machines.two.write(Appending(appending("run_1", 1, step(2)))).result(LIMIT)
    other = machines.two.write(Apart("ledger", lambda _tx: None))
    until(lambda: other.done() or machines.someone_waits(), "the second call to come to a lock")
    assert not other.done(), "calls have the ledger to themselves: limits are checked under it"
    held.go_on.set()
    call.result(LIMIT)
    other.result(LIMIT)


def test_two_starts_by_one_key_are_one_run(machines: Machines) -> None:
    def creating(name: str) -> leases.Creating:
        return leases.Creating(new_run(name, key="k"), None, machines.moment)

    held = HeldCreate(creating("run_1"))
    one = machines.one.write(held)
    assert held.decided.wait(LIMIT), "it has seen that there is none of this key"
    two = machines.two.write(creating("run_2")).result(LIMIT)
    held.go_on.set()
    assert not two.existed
    assert one.result(LIMIT).run.id == two.run.id == "run_2"
    assert machines.ask("SELECT count(*) FROM runs") == [(1,)]


def test_of_two_who_decide_one_is_refused(machines: Machines) -> None:
    started(machines)
    machines.one.write(lambda tx: approvals.add(tx, approval("apr_1"))).result(LIMIT)

    def decide(tx: Transaction) -> Any:
        return approvals.decide(tx, "apr_1", verdict())

    one, two = machines.at_once(decide, decide)
    assert one.status == "approved" and isinstance(two, ApprovalRefused)


def test_of_two_who_begin_a_step_one_does(machines: Machines) -> None:
    started(machines)
    begin = Own(("run_1",), lambda tx: approvals.begin_once(tx, "run_1", "0/1", 1.0))
    assert machines.at_once(begin, begin) == (True, False)


def test_a_run_is_cancelled_while_another_claims_it(machines: Machines) -> None:
    creating = leases.Creating(new_run("run_1"), None, machines.moment)
    machines.one.write(creating).result(LIMIT)

    claim = Own((), claiming(machines, "wkr_1"))

    def cancel(tx: Transaction) -> None:
        run = queries.get(tx.connection, "run_1")
        assert run is not None
        projections.cancel(tx, run, 1.0)

    [claimed], _ = machines.at_once(claim, cancel)
    assert claimed.run.id == "run_1"
    asked = machines.ask("SELECT kind FROM inbox WHERE run_id = 'run_1'")
    assert asked == [("cancel",)], "its owner is told, and nobody writes its journal meanwhile"
    assert machines.ask("SELECT count(*) FROM events") == [(1,)]


def test_who_claims_a_run_finds_all_that_its_old_owner_could_write(machines: Machines) -> None:
    started(machines)
    held = HeldAppend(appending("run_1", 1, step(2)))
    old = machines.one.write(held)
    assert held.decided.wait(LIMIT)

    def claim(tx: Transaction) -> tuple[list[leases.Claim], int]:
        found = leases.claim(tx, worker("wkr_2"), wanted("flow"), machines.moment(), ["wkr_1"])
        return found, len(events.load(tx.connection, "run_1"))

    new = machines.two.write(claim)
    until(lambda: new.done() or machines.someone_waits(), "the claim to come to a lock")
    held.go_on.set()
    old.result(LIMIT)
    [claimed], length = new.result(LIMIT)
    assert length == 2
    late = machines.one.write(Appending(appending("run_1", 1, step(3))))
    assert isinstance(outcome(late), LeaseLost)
    machines.two.write(Appending(appending("run_1", claimed.fence, step(3)))).result(LIMIT)


def test_appends_to_different_runs_do_not_wait_for_one_another(machines: Machines) -> None:
    for name in ("run_1", "run_2"):
        started(machines, name)
    held = HeldAppend(appending("run_1", 1, step(2)))
    one = machines.one.write(held)
    assert held.decided.wait(LIMIT)
    machines.two.write(Appending(appending("run_2", 1, step(2, of="run_2")))).result(LIMIT)
    assert not one.done()
    held.go_on.set()
    one.result(LIMIT)


@pytest.mark.parametrize("reached", [True, False], ids=["it was committed", "it was not"])
def test_a_commit_whose_answer_is_lost_is_carried_out_once(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, reached: bool
) -> None:
    started(machines)
    usual, lost = PostgresConnection.script, threading.Event()

    def script(self: PostgresConnection, *statements: str) -> None:
        if statements[-1] == "COMMIT" and not lost.is_set():
            lost.set()
            if reached:
                usual(self, *statements)
            self.raw.close()
        usual(self, *statements)

    monkeypatch.setattr(PostgresConnection, "script", script)
    machines.one.write(Appending(appending("run_1", 1, step(2)))).result(LIMIT)
    assert lost.is_set()
    assert machines.ask("SELECT seq FROM events ORDER BY seq") == [(1,), (2,)]

    def count(tx: Transaction) -> int:
        """One that would be seen to be done twice."""
        return mailbox.send(tx, "n", b"{}", f"evt_{tx.connection.total_changes}", None, 1.0)

    lost.clear()
    machines.one.write(count).result(LIMIT)
    assert machines.ask("SELECT count(*) FROM messages") == [(1,)]


def test_work_goes_on_after_the_server_was_gone(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = postgres_server.short_folder()
    server = postgres_server.Server(folder)
    server.make()
    server.start()
    try:
        machines = Machines(PostgresUrl.parse(server.url()))
        started(machines)
        server.stop()
        waiting = machines.one.write(Appending(appending("run_1", 1, step(2))))
        assert not waiting.done()
        server.start()
        waiting.result(LIMIT)
        assert machines.ask("SELECT seq FROM events ORDER BY seq") == [(1,), (2,)]
        machines.close()
    finally:
        server.stop()
        postgres_server.remove(folder)


def test_what_shares_the_lock_is_what_concerns_its_own_run() -> None:
    def of(*given: Event) -> sharing.Plan | None:
        return sharing.plan([Appending(appending("run_1", 1, *given))])

    assert of(step(2)) is not None
    assert of(event(2, "run.completed")) is not None
    assert of(event(2, "wait.created", "0/1", name="n")) is not None
    assert of(event(2, "wait.created", "0/1", name="@run/run_2")) is None
    limited = {"id": "run_2", "run_limit": 1}
    assert of(event(2, "child.started", "0/1", run=limited)) is None
    assert of(event(2, "run.failed", handler={"id": "run_9"})) is None
    assert sharing.plan([lambda tx: None]) is None
