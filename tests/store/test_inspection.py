"""Questions of the inspector: right, and bounded whatever the store holds."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import StoreError
from holdfast.ids import new_id
from holdfast.store.inspection import View
from holdfast.store.sqlite import call_views, schema
from holdfast.store.sqlite.database import Database
from holdfast.store.sqlite.inspection import SqliteInspection
from holdfast.store.sqlite.run_views import (
    RunQuery,
    counts,
    run_page,
)
from seeding import Seed

STATUSES = ("completed", "completed", "completed", "failed", "waiting")


@pytest.fixture
def seed(tmp_path: Path) -> Iterator[Seed]:
    made = Seed(tmp_path / "store.db")
    yield made
    made.connection.close()
    made.let_go()


def many(seed: Seed, number: int) -> None:
    """Runs in bulk: their rows, first events, attributes and spend."""
    begin = seed.now - number
    ids = [new_id("run", at=begin + n, entropy=n.to_bytes(10, "big")) for n in range(number)]
    seed.connection.executemany(
        "INSERT INTO runs (id, workflow, version, status, first_message, created_at, started_at,"
        " finished_at, error) VALUES (?, ?, '1', ?, 1, ?, ?, ?, ?)",
        [
            (id, f"flow_{n % 7}", STATUSES[n % 5], begin + n, begin + n, begin + n + 5, None)
            for n, id in enumerate(ids)
        ],
    )
    seed.connection.executemany(
        "INSERT INTO attributes VALUES (?, ?, ?)",
        [
            pair
            for n, id in enumerate(ids)
            for pair in (
                (id, "task", json.dumps(f"task number {n}")),
                (id, "customer", json.dumps(f"c{n % 500}")),
            )
        ],
    )
    seed.connection.executemany(
        "INSERT INTO events (run_id, seq, type, key, at, meta, value, hash)"
        " VALUES (?, 1, 'run.created', '', ?, '{}', x'7b7d', x'')",
        [(id, begin + n) for n, id in enumerate(ids)],
    )
    seed.connection.executemany(
        "INSERT INTO spend VALUES (?, 1, 1, 1, 0, 0)", [(f"run:{id}",) for id in ids]
    )


def work(connection: sqlite3.Connection, question: Callable[[], Any]) -> int:
    """How much SQLite has to do for a question, in hundreds of its instructions."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_progress_handler(count, 100)
    try:
        question()
    finally:
        connection.set_progress_handler(None, 100)
    return steps


PAGES: dict[str, Callable[[Seed], RunQuery]] = {
    "all": lambda _: RunQuery(),
    "a workflow": lambda _: RunQuery(workflow="flow_3"),
    "a status": lambda _: RunQuery(status=("failed",)),
    "a status that nobody has": lambda _: RunQuery(status=("stuck",)),
    "several statuses": lambda _: RunQuery(status=("queued", "pending", "running", "waiting")),
    "a workflow and a status": lambda _: RunQuery(workflow="flow_3", status=("failed",)),
    "a workflow and a status nobody has": lambda _: RunQuery(workflow="flow_3", status=("stuck",)),
    "an attribute": lambda _: RunQuery(attributes=(("customer", '"c7"'),)),
    "the last hour": lambda seed: RunQuery(since=seed.now - 3600),
    "the last ten seconds": lambda seed: RunQuery(since=seed.now - 10),
    "a day that is past": lambda seed: RunQuery(until=seed.now - 1500),
    "children": lambda _: RunQuery(parent="run_nobody"),
}

NONE = ("a status that nobody has", "a workflow and a status nobody has", "children")


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Seed, Seed]]:
    """A store with two thousand runs, and one with a hundred thousand."""
    folder = tmp_path_factory.mktemp("many")
    seeds = (Seed(folder / "small.db"), Seed(folder / "large.db"))
    many(seeds[0], 2000)
    many(seeds[1], 100_000)
    yield seeds
    for seed in seeds:
        seed.connection.close()
        seed.let_go()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_a_hundred_thousand_runs_costs_what_one_of_two_thousand_does(
    sizes: tuple[Seed, Seed], name: str
) -> None:
    def cost(seed: Seed) -> int:
        which = PAGES[name](seed)
        page = run_page(seed.connection, which, 50)
        assert len(page.rows) == (0 if name in NONE else min(page.found or 0, 50))
        return work(seed.connection, lambda: run_page(seed.connection, which, 50))

    small, large = (cost(seed) for seed in sizes)
    # Counting what fits stops at a thousand; nothing else may depend on how many there are.
    assert large <= small * 2 + 400, (small, large)


def test_a_page_in_the_middle_costs_what_the_first_does(sizes: tuple[Seed, Seed]) -> None:
    connection = sizes[1].connection
    middle = connection.execute("SELECT id FROM runs ORDER BY id LIMIT 1 OFFSET 50000").fetchone()[
        0
    ]
    first = work(connection, lambda: run_page(connection, RunQuery(), 50))
    assert work(connection, lambda: run_page(connection, RunQuery(), 50, below=middle)) <= first * 2
    assert work(connection, lambda: run_page(connection, RunQuery(), 50, above=middle)) <= first * 2


def test_a_search_looks_at_a_bounded_number_of_runs_and_says_where_it_stopped(
    sizes: tuple[Seed, Seed],
) -> None:
    connection = sizes[1].connection
    found = run_page(connection, RunQuery(search="task number 99998"), 50)
    assert [row.run.attributes["task"] for row in found.rows] == ["task number 99998"]
    missed = run_page(connection, RunQuery(search="task number 77 "), 50)
    assert missed.rows == []
    assert missed.searched_to is not None
    assert missed.older is not None
    older = run_page(connection, RunQuery(search='task number 77"'), 50, below=missed.older)
    assert [row.run.attributes["task"] for row in older.rows] == ["task number 77"]


def test_counts_are_kept_as_runs_come_and_change(seed: Seed) -> None:
    run = seed.run("order", 10, {})
    seed.run("order", 9, {})
    assert counts(seed.connection) == {"order": {"pending": 2}}
    run.begin()
    run.complete(None)
    assert counts(seed.connection) == {"order": {"pending": 1, "completed": 1}}
    seed.connection.execute("DELETE FROM runs WHERE id = ?", (run.id,))
    assert counts(seed.connection) == {"order": {"pending": 1}}
    assert run_page(seed.connection, RunQuery(workflow="order"), 10).found == 1


def test_a_store_from_before_gets_its_counts_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.db"
    before = [found for found in schema.migrations() if found[0] < 5]
    with monkeypatch.context() as patched:
        patched.setattr(schema, "migrations", lambda: before)
        schema.connect(path).close()
    old = sqlite3.connect(path)
    old.execute(
        "INSERT INTO runs (id, workflow, version, status, first_message, created_at)"
        " VALUES ('run_1', 'order', '1', 'waiting', 1, 0)"
    )
    old.commit()
    old.close()
    connection = schema.connect(path)
    assert counts(connection) == {"order": {"waiting": 1}}
    connection.close()


def test_what_is_summed_up_about_calls_is_read_from_the_index_alone(seed: Seed) -> None:
    for n in range(50):
        cost = None if n == 3 else 0.001
        seed.call("a/x", seed.now - n, 0.5 + n / 10, (100, 10), cost, reply="y" * 5000)
    plan = seed.connection.execute("EXPLAIN QUERY PLAN " + call_views.SUMS, (0,)).fetchall()
    assert "COVERING INDEX calls_summed" in str(plan)
    found = call_views.sums(seed.connection, seed.now - 100)
    assert sum(each.totals.calls for each in found) == 50
    assert sum(each.totals.unpriced for each in found) == 1
    assert sum(each.totals.cost for each in found) == 49_000_000
    slices = call_views.over_time(seed.connection, seed.now - 60, 30)
    assert {each.index for each in slices} == {0, 1, 2}
    assert sum(each.totals.calls for each in slices) == 50


async def test_a_question_cannot_write_and_sees_one_moment(seed: Seed) -> None:
    seed.run("order", 60, {})
    seed.connection.execute("COMMIT")
    reader = SqliteInspection(seed.path)
    try:

        def ask(view: View) -> tuple[Any, Any]:
            before = view.state(seed.now).counts
            seed.connection.execute("BEGIN")
            seed.run("order", 1, {})
            seed.connection.execute("COMMIT")
            return before, view.state(seed.now).counts

        before, after = await reader.ask(ask)
        assert before == after == {"order": {"pending": 1}}
        now = await reader.ask(lambda view: view.state(seed.now).counts)
        assert now == {"order": {"pending": 2}}
    finally:
        reader.close()
    database = Database.open(seed.path)
    try:
        with pytest.raises(StoreError, match=r"can't be written|readonly"):
            database.read(lambda c: c.execute("DELETE FROM runs")).result()
    finally:
        database.close()
