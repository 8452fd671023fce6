"""The store in PostgreSQL beyond what every store does: addresses, schema, many processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import postgres_harness
import postgres_server
from holdfast.errors import SchemaTooNew, StoreError, UsageError
from holdfast.store import opener
from holdfast.store.postgres import schema
from holdfast.store.postgres.url import PostgresUrl
from holdfast.store.sqlite import schema as sqlite_schema
from holdfast.testing.store_conformance.records import opened
from waiting import until

pytestmark = pytest.mark.skipif(postgres_server.programs() is None, reason=postgres_server.MISSING)
HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]


@pytest.fixture
def url() -> str:
    return postgres_server.fresh_url()


def test_an_address_is_named_without_its_password() -> None:
    text = "postgres://ann:se%40cret@db.example:5433/work?sslmode=require&namespace=billing"
    found = PostgresUrl.parse(text)
    assert found.name == "postgresql://ann@db.example:5433/work?sslmode=require&namespace=billing"
    assert "se%40cret" in found.conninfo and "namespace" not in found.conninfo
    assert found.schema == "holdfast_billing"
    assert PostgresUrl.parse(found.name) is found, "the name opens the same store"
    assert "cret" not in repr(found)


@pytest.mark.parametrize("wrong", ["namespace=No-Such", "listen=perhaps", "namespace=a;drop"])
def test_a_wrong_setting_in_an_address_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError):
        PostgresUrl.parse(f"postgresql://h/d?{wrong}")


def test_the_tests_that_run_on_both_stores_are_there() -> None:
    assert postgres_harness.unknown() == []


def test_both_databases_have_the_same_tables_and_columns(url: str) -> None:
    """Whoever adds to one adds to the other."""
    lite = sqlite3.connect(":memory:", isolation_level=None)
    sqlite_schema.migrate(lite, "memory")
    names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    tables = [row[0] for row in lite.execute(names)]
    wanted = {
        (table, row[1]) for table in tables for row in lite.execute(f"PRAGMA table_info({table})")
    }
    lite.close()
    asyncio.run(_make(url))
    known = PostgresUrl.parse(url)
    with psycopg.connect(known.conninfo) as connection:
        rows = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_schema = %s",
            (known.schema,),
        ).fetchall()
    found = {(str(table), str(column)) for table, column in rows}
    assert wanted - found == set()
    assert {table for table, _ in found} - {table for table, _ in wanted} == {
        "run_deltas", "owner_leases", "schema_version", "batch_marks",
    }  # fmt: skip


async def _make(url: str) -> None:
    async with opened(opener.parts(url), "wkr_1"):
        pass


async def test_many_may_make_the_store_at_once(url: str) -> None:

    # One process has one Database: others have to be others.
    program = "import asyncio, sys; sys.path[:0] = sys.argv[2:]\n"
    program += "from store import test_postgres_store as t; asyncio.run(t._make(sys.argv[1]))"
    folder = str(Path(__file__).parent.parent)
    children = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", program, url, folder)
        for _ in range(4)
    ]
    assert [await child.wait() for child in children] == [0, 0, 0, 0]
    assert opener.examine(url).schema_version == schema.migrations()[-1][0]


async def test_a_newer_schema_is_refused_by_name(url: str) -> None:
    await _make(url)
    known = PostgresUrl.parse(url)
    with psycopg.connect(known.conninfo, autocommit=True) as connection:
        connection.execute(f"UPDATE {known.schema}.schema_version SET version = 99".encode())
    with pytest.raises(SchemaTooNew, match="schema 99"):
        await _make(url)


async def test_a_server_that_is_not_there_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.postgres.database.PATIENCE", 0.0)
    nowhere = "postgresql://nobody:secret@127.0.0.1:1/none"
    with pytest.raises(StoreError, match="can't be reached") as refused:
        await _make(nowhere)
    assert "secret" not in str(refused.value)
    health = opener.examine(nowhere)
    assert not health.exists and health.problem is not None


FLOWS = """
import asyncio, os
from pathlib import Path
from holdfast import step, workflow

@step
async def add(total: int, place: int) -> int:
    with open(os.environ["DONE"], "a") as file:
        file.write(f"{place}\\n")
    await asyncio.sleep(0.02)
    return total + 1

@workflow
async def count(n: int) -> int:
    total = 0
    for place in range(n):
        total = await add(total, place)
    return total
"""


@pytest.fixture
def flows(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "flows.py"
    file.write_text(FLOWS)
    yield file


def test_runs_of_a_killed_worker_go_on_with_another(url: str, flows: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "HOLDFAST_STORE": url, "DONE": str(tmp_path / "done")}
    (tmp_path / "holdfast.toml").write_text("[runtime]\nlease_seconds = 3\n")

    def holdfast(*arguments: str) -> str:
        done = subprocess.run(
            [*HOLDFAST, *arguments],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def worker() -> subprocess.Popen[bytes]:
        command = [*HOLDFAST, "worker", str(flows), "--quiet"]
        return subprocess.Popen(command, env=environment, cwd=tmp_path)

    for _ in range(6):
        holdfast("run", "--detach", f"{flows}:count", "--input", '{"n": 40}')
    workers = [worker(), worker()]
    try:
        until(lambda: (tmp_path / "done").exists(), "a step")
        workers[0].kill()

        def ended() -> bool:
            runs = json.loads(holdfast("runs", "list", "--json"))["runs"]
            return all(run["status"] == "completed" for run in runs)

        until(ended, "the end of all runs")
    finally:
        for each in workers:
            if each.poll() is None:
                each.send_signal(signal.SIGTERM)
        for each in workers:
            each.wait()
    known = PostgresUrl.parse(url)
    with psycopg.connect(known.conninfo) as connection:
        connection.execute(f"SET search_path = {known.schema}".encode())
        gaps = connection.execute(
            "SELECT run_id FROM events GROUP BY run_id HAVING count(*) <> max(seq)"
        ).fetchall()
        twice = connection.execute(
            "SELECT run_id, key FROM events WHERE type = 'step.completed'"
            " GROUP BY run_id, key HAVING count(*) > 1"
        ).fetchall()
        ended_runs = connection.execute("SELECT sum(runs) FROM run_counts").fetchone()
    assert (gaps, twice, ended_runs) == ([], [], (6,))
