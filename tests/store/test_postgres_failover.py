"""A store whose server is lost: commits without an answer, standbys, promotion, doctor's warnings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

import postgres_server
from chaos import flows
from holdfast import open_engine, send_event, start
from holdfast.store import opener
from holdfast.store.connection import DatabaseFault
from holdfast.store.postgres.connection import PostgresConnection
from holdfast.store.postgres.database import PostgresDatabase
from holdfast.store.postgres.url import PostgresUrl
from holdfast.store.sqlite.database import Transaction, nothing
from waiting import until

pytestmark = pytest.mark.skipif(postgres_server.programs() is None, reason=postgres_server.MISSING)

SENT = "INSERT INTO kept (name, data, expires_at) VALUES ('once', 'x', 0)"
MOST_CONNECTIONS = 30
KEPT = "SELECT count(*) FROM kept WHERE name = 'once'"


@pytest.fixture(scope="module")
def first() -> Iterator[postgres_server.Server]:
    """A server of this file's own, which it may stop."""
    folder = postgres_server.short_folder()
    server = postgres_server.Server(folder, {"max_connections": str(MOST_CONNECTIONS)})
    server.make()
    server.start()
    try:
        yield server
    finally:
        server.stop_if_running()
        postgres_server.remove(folder)


def insert(tx: Transaction) -> None:
    tx.execute(SENT)


def count(database: PostgresDatabase) -> int:
    return database.read(lambda c: int(c.execute(KEPT).fetchone()[0])).result()


def lose_the_next_commit(monkeypatch: pytest.MonkeyPatch, *, done: bool) -> list[str]:
    """Have the connection be lost at the next commit: after it was done, or before."""
    lost: list[str] = []
    script = PostgresConnection.script

    def losing(self: PostgresConnection, *statements: str) -> None:
        if statements[-1] == "COMMIT" and "batch_marks" in statements[0] and not lost:
            lost.append("COMMIT")
            if done:
                script(self, *statements)
            self.close()
            raise DatabaseFault("lost") from psycopg.OperationalError("server closed")
        script(self, *statements)

    monkeypatch.setattr(PostgresConnection, "script", losing)
    return lost


def test_an_error_of_the_system_on_the_way_is_a_lost_connection(
    first: postgres_server.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = PostgresDatabase(PostgresUrl.parse(first.url("system")))
    raised: list[OSError] = []
    execute = psycopg.Connection.execute

    def failing(self: Any, query: Any, *rest: Any, **options: Any) -> Any:
        if b"INSERT INTO kept" in bytes(query) and not raised:
            raised.append(OSError(22, "Invalid argument"))
            raise raised[0]
        return execute(self, query, *rest, **options)

    monkeypatch.setattr(psycopg.Connection, "execute", failing)
    try:
        database.write(insert).result()
        assert raised and count(database) == 1
    finally:
        database.close()


@pytest.mark.parametrize("done", [True, False])
def test_a_commit_whose_answer_was_lost_is_done_once(
    first: postgres_server.Server, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    database = PostgresDatabase(PostgresUrl.parse(first.url(f"lost_{done}".lower())))
    try:
        lost = lose_the_next_commit(monkeypatch, done=done)
        database.write(insert).result()
        assert lost and count(database) == 1
    finally:
        database.close()


def test_a_server_that_never_had_a_transaction_is_not_asked_by_its_number(
    first: postgres_server.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failover another transaction may have the number of one that was lost."""
    other = postgres_server.Server(postgres_server.short_folder(), first.settings)
    url = PostgresUrl.parse(postgres_server.either(first, other, "numbers"))
    database = PostgresDatabase(url)
    with ExitStack() as cleanup:
        cleanup.callback(postgres_server.remove, other.folder)
        cleanup.callback(first.start)
        cleanup.callback(other.stop_if_running)
        cleanup.callback(database.close)
        database.write(nothing).result()
        first.stop("fast")
        other.take_over_from(first)  # as a standby has it that got no more
        first.start()
        lose = lose_the_next_commit(monkeypatch, done=False)
        numbers: list[int] = []

        def inserted(tx: Transaction) -> None:
            if not numbers:
                numbers.append(tx.execute("SELECT pg_current_xact_id()::text").fetchone()[0])
                tx.execute(SENT)
                first.stop()
                other.start()
                with psycopg.connect(other.conninfo, autocommit=True) as session:
                    used = 0
                    while used < int(numbers[0]):
                        used = int(_one(session, "SELECT pg_current_xact_id()::text"))
                    status = f"SELECT pg_xact_status('{numbers[0]}')"
                    assert _one(session, status) == "committed", "somebody else's"
            else:
                tx.execute(SENT)

        database.write(inserted).result()
        assert lose and count(database) == 1


def _one(session: psycopg.Connection[Any], sql: str) -> Any:
    return (session.execute(sql.encode()).fetchone() or (None,))[0]


def concerns(url: str) -> list[str]:
    return [what for what, _hint in opener.examine(url).concerns]


async def test_a_promoted_standby_has_what_was_acknowledged_and_runs_go_on(
    first: postgres_server.Server,
) -> None:
    standby = postgres_server.Server(postgres_server.short_folder(), first.settings)
    url = postgres_server.either(first, standby, "promoted")
    with ExitStack() as cleanup:
        cleanup.callback(postgres_server.remove, standby.folder)
        cleanup.callback(standby.stop_if_running)
        cleanup.callback((first.data / "postgresql.auto.conf").write_text, "")
        await asyncio.to_thread(standby.follow, first)
        async with open_engine(url):
            with psycopg.connect(first.conninfo, autocommit=True) as session:
                linked = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
                await asyncio.to_thread(until, lambda: _one(session, linked), "the standby")
                assert any("none of them is synchronous" in each for each in concerns(url))
                session.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                session.execute("SELECT pg_reload_conf()")
                synced = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
                await asyncio.to_thread(until, lambda: _one(session, synced), "it in step")
            assert not any("synchronous" in each for each in concerns(url))
            runs = [await start(flows.chaos_mixed, number) for number in range(8)]
            await asyncio.to_thread(first.stop)
            await asyncio.to_thread(standby.promote)
            for number in range(8):
                await send_event("go", {"number": number})
            results = await asyncio.gather(*(run.result() for run in runs))
    assert results == [flows.result_of(number) for number in range(8)]


def test_doctor_is_told_of_a_server_that_may_lose_things_and_of_connections_that_run_out(
    first: postgres_server.Server,
) -> None:
    first.start_if_stopped()
    url = first.url("warned")
    database = PostgresDatabase(PostgresUrl.parse(url))
    database.write(nothing).result()
    database.close()
    [unsafe] = concerns(url)
    assert "fsync" in unsafe, "the tests' servers do not wait for the disk"
    with ExitStack() as cleanup:
        for _ in range(MOST_CONNECTIONS * 9 // 10):
            cleanup.enter_context(psycopg.connect(first.conninfo))
        assert any("connections are in use" in each for each in concerns(url))
