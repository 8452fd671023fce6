"""What a process has open: the default store and engine, and who lets go of them."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from holdfast import generate_text, open_engine, session, start, step, workflow
from holdfast.runtime.app import current_engine


@pytest.mark.parametrize(
    ("named", "path"),
    [("jobs.db", "jobs.db"), ("", session.DEFAULT_STORE), (None, session.DEFAULT_STORE)],
)
def test_an_empty_variable_names_no_store(
    named: str | None, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    if named is not None:
        monkeypatch.setenv("HOLDFAST_STORE", named)
    assert session.default_store() == path


@step
async def ask(question: str) -> str:
    return (await generate_text("scripted/echo", prompt=question)).text


@workflow
async def asking_a_model(question: str) -> str:
    return await ask(question)


async def test_model_calls_are_recorded_in_the_store_that_is_open(tmp_path: Path) -> None:
    for name in ("one", "two"):
        async with open_engine(tmp_path / f"{name}.db"):
            run = await start(asking_a_model, name)
            assert await run.result() == name
    for name in ("one", "two"):
        with sqlite3.connect(tmp_path / f"{name}.db") as connection:
            calls = connection.execute("SELECT count(*) FROM calls").fetchone()
        connection.close()
        assert calls == (1,)


async def test_what_a_store_was_used_for_is_closed_with_it(tmp_path: Path) -> None:
    closed: list[str] = []

    async def close() -> None:
        closed.append("gateway")

    async with open_engine(tmp_path / "a.db"):
        assert session.current_store() == str(tmp_path / "a.db")
        session.on_store_close(session.current_store(), close)
        async with open_engine(tmp_path / "a.db", worker=False):
            pass
        assert closed == []
    assert closed == ["gateway"]
    assert session.opened_store() is None


async def test_two_first_calls_at_once_share_the_default_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "default.db"))
    one, other = await asyncio.gather(current_engine(), current_engine())
    assert one is other is session.opened_engine()


async def test_a_first_call_that_is_cancelled_leaves_the_engine_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "default.db"))
    impatient, patient = (asyncio.create_task(current_engine()) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient is session.opened_engine()
