"""Copies of stores between SQLite and PostgreSQL: all of it, once, and still able to go on."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import postgres_server
from holdfast import (
    approval,
    decide,
    list_approvals,
    open_engine,
    send_event,
    start,
    step,
    wait_for_event,
    workflow,
)
from holdfast.cli.main import main
from holdfast.errors import Refused, StoreError, UsageError
from holdfast.store import opener, store_copy
from holdfast.store.sqlite import schema
from waiting import LIMIT

pytestmark = pytest.mark.skipif(postgres_server.programs() is None, reason=postgres_server.MISSING)


@step
async def greet(name: str) -> str:
    return f"hello {name} ☺"


@workflow
async def copied_greeting(name: str) -> str:
    return await greet(name)


@workflow
async def copied_wait(order: str) -> str:
    await greet(order)
    paid = await wait_for_event("paid", match={"order": order}, timeout="9d")
    said = await approval("Ship it?", timeout="9d")
    return f"{order} {paid.payload['by'] if paid else None} {said.by}"


def every_table() -> set[str]:
    lite = sqlite3.connect(":memory:", isolation_level=None)
    schema.migrate(lite, "memory")
    names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    found = {str(row[0]) for row in lite.execute(names)}
    lite.close()
    return found


def test_every_table_is_copied_or_said_to_be_made_anew() -> None:
    """Whoever adds a table says which it is."""
    assert set(store_copy.EVERY) | store_copy.MADE_ANEW == every_table()


async def waiting_on(store: Any) -> str:
    """A store with a run that has ended and one that waits for an event, and then a decision."""
    async with open_engine(store) as engine:
        for name in ("ann", "bob"):
            await (await start(copied_greeting, name)).result()
        run = await start(copied_wait, "A-1")
        await send_event("paid", {"order": "B-7"})
        async with asyncio.timeout(LIMIT):
            while (await engine.store.get(run.id)).status != "waiting":  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
    return run.id


async def goes_on(store: Any, run_id: str) -> None:
    async with open_engine(store) as engine:
        await send_event("paid", {"order": "A-1", "by": "card"})
        async with asyncio.timeout(LIMIT):
            while not (found := await list_approvals()):
                await asyncio.sleep(0.01)
        await decide(found[0].id, True, by="eve")
        async with asyncio.timeout(LIMIT):
            while not (await engine.store.get(run_id)).ended:  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
        last = await engine.store.last_event(run_id)
        assert last.value == b'"A-1 card eve"'
        fresh = await start(copied_greeting, "new")
        assert await fresh.result() == "hello new ☺"
        log = await engine.store.log(0, 1000)
        assert [each.log for each in log] == sorted({each.log for each in log})
        assert log[-1].run_id == fresh.id, "what is new is behind all that was copied"


async def test_a_store_goes_to_postgres_and_back_and_its_runs_go_on(tmp_path: Path) -> None:
    first, back = tmp_path / "first.db", tmp_path / "back.db"
    url = postgres_server.fresh_url()
    run = await waiting_on(first)
    there = await asyncio.to_thread(store_copy.copy, first, url)
    assert there.rows["runs"] == 3 and there.rows["messages"] == 1 and not there.resumed
    again = await asyncio.to_thread(store_copy.copy, url, back)
    assert again.rows == there.rows
    await goes_on(url, run)
    await goes_on(back, run)
    assert sum(opener.examine(back).runs.values()) == 4


def interrupted(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    """Have a copy die when it comes to a table, as if killed."""
    real: Callable[..., None] = store_copy._Copy._fill

    def fill(self: Any, name: str, key: Any, after: Any) -> None:
        if name == table:
            raise KeyboardInterrupt
        real(self, name, key, after)

    monkeypatch.setattr(store_copy._Copy, "_fill", fill)


async def test_a_copy_that_was_interrupted_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, other, url = tmp_path / "one.db", tmp_path / "two.db", postgres_server.fresh_url()
    await waiting_on(source)
    await waiting_on(other)
    with monkeypatch.context() as patched:
        interrupted(patched, "messages")
        with pytest.raises(KeyboardInterrupt):
            store_copy.copy(source, url)
    assert opener.examine(url).runs == {}, "a worker would find nothing to do"
    with pytest.raises(Refused, match="copy of another store"):
        store_copy.copy(other, url)
    done = store_copy.copy(source, url)
    assert done.resumed and done.rows["runs"] == 3
    with pytest.raises(Refused, match="not empty"):
        store_copy.copy(source, url)


async def test_a_source_that_changed_meanwhile_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, url = tmp_path / "one.db", postgres_server.fresh_url()
    run = await waiting_on(source)
    with monkeypatch.context() as patched:
        interrupted(patched, "messages")
        with pytest.raises(KeyboardInterrupt):
            store_copy.copy(source, url)
    with sqlite3.connect(source) as raw:
        raw.execute("DELETE FROM events WHERE run_id <> ?", (run,))
    raw.close()
    with pytest.raises(StoreError, match="events: the copy has"):
        store_copy.copy(source, url)
    assert opener.examine(url).runs == {}


async def test_what_can_not_be_copied_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "one.db"
    with pytest.raises(StoreError, match="no store"):
        store_copy.copy(source, tmp_path / "two.db")
    async with open_engine(source):
        with pytest.raises(Refused, match="has workers"):
            store_copy.copy(source, tmp_path / "two.db")
    with pytest.raises(UsageError):
        store_copy.copy(source, source)


async def test_the_command_tells_what_it_copied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, url = tmp_path / "one.db", postgres_server.fresh_url()
    await waiting_on(source)
    assert await asyncio.to_thread(main, ["store", "copy", str(source), url]) == 0
    told = capsys.readouterr()
    assert "         3  runs\n" in told.out and "read back and compared" in told.err
    assert await asyncio.to_thread(main, ["store", "copy", str(source), url]) == 3
    assert "is not empty" in capsys.readouterr().err
