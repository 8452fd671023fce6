"""A run as a file: exported from one store, imported into another, the same there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import get_run, set_attributes, start, step, workflow
from holdfast.errors import Refused, RunFailed, UsageError
from holdfast.gateway import ScriptedModel, generate_text
from holdfast.runtime.app import open_engine
from holdfast.runtime.run_archive import RunArchive, export_run, import_runs
from holdfast.store import opener


@pytest.fixture
def model() -> Any:
    made = ScriptedModel("scribe", ["four"] * 5)
    made.register()
    yield made


@step
async def ask(number: int) -> str:
    return (await generate_text("scripted/scribe", prompt=str(number))).text


@workflow
async def small(number: int) -> str:
    set_attributes(size=number)
    return await ask(number)


@step(retries=0)
async def large_value() -> str:
    return "é" * 200_000


@workflow
async def family(number: int) -> str:
    await large_value()
    return await small(number)


@workflow
async def broken() -> None:
    raise ValueError("as it was")


async def exported(store: Path) -> tuple[str, str]:
    """A run with a child, a model call and a large payload, as a file."""
    async with open_engine(store) as engine:
        run = await start(family.options(key="k", attributes={"team": "a"}), 4)
        assert await run.result() == "four"
        return run.id, (await export_run(engine.store, str(store), run.id)).to_text()


async def test_a_run_is_in_another_store_as_it_was(tmp_path: Path, model: Any) -> None:
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    run_id, text = await exported(first)
    archive = RunArchive.of_text(text)
    assert [each.run.workflow for each in archive.runs] == ["family", "small"]
    async with open_engine(second) as engine:
        made = await import_runs(engine.store, str(second), archive)
        assert made == [each.run.id for each in archive.runs]
        run = await engine.store.get(run_id)
        assert run is not None
        was = archive.runs[0].run
        assert (run.status, run.created_at, run.finished_at, run.attributes) == (
            was.status,
            was.created_at,
            was.finished_at,
            {"team": "a"},
        )
        child = await engine.store.get(made[1])
        assert child is not None and (child.parent_id, child.attributes) == (run_id, {"size": 4})
        # It is read as any other, and a fork of it goes on from what it recorded.
        handle = await get_run(run_id)
        assert await handle.result() == "four"
        forked = await handle.fork()
        assert await forked.result() == "four"
        # Its key is free here: another run may have it.
        assert (await start(family.options(key="k"), 4)).id != run_id
        assert await import_runs(engine.store, str(second), archive) == []
    inspection = opener.inspection(str(second))
    try:
        totals = await inspection.ask(lambda view: view.call_totals(made[1]))
        spent = await inspection.ask(lambda view: view.spent(f"run:{made[1]}"))
    finally:
        inspection.close()
    assert totals.calls == 1
    assert spent.calls == 0  # not this store's budget


async def test_exporting_again_gives_the_same_runs(tmp_path: Path, model: Any) -> None:
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    run_id, text = await exported(first)
    async with open_engine(second, worker=False) as engine:
        await import_runs(engine.store, str(second), RunArchive.of_text(text))
        again = await export_run(engine.store, str(second), run_id)
    was = RunArchive.of_text(text)
    for one, other in zip(was.runs, again.runs, strict=True):
        assert [e._replace(log=0) for e in one.journal] == [
            e._replace(log=0) for e in other.journal
        ]
        assert one.calls[0].end == other.calls[0].end if one.calls else not other.calls


async def test_what_was_changed_or_goes_on_is_refused(tmp_path: Path, model: Any) -> None:
    _, text = await exported(tmp_path / "first.db")
    with pytest.raises(UsageError, match="damaged or changed"):
        RunArchive.of_text(text.replace("four", "five"))
    with pytest.raises(UsageError, match="no exported run"):
        RunArchive.of_text("{}")
    store = tmp_path / "second.db"
    async with open_engine(store, worker=False) as engine:
        waiting = await start(broken)
        with pytest.raises(Refused, match="when it has ended"):
            await export_run(engine.store, str(store), waiting.id)


async def test_a_failed_run_fails_there_as_it_did(tmp_path: Path) -> None:
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    async with open_engine(first) as engine:
        run = await start(broken)
        with pytest.raises(RunFailed):
            await run.result()
        text = (await export_run(engine.store, str(first), run.id)).to_text()
    async with open_engine(second) as engine:
        await import_runs(engine.store, str(second), RunArchive.of_text(text))
        record = await engine.store.get(run.id)
        assert record is not None and record.error == "ValueError: as it was"
        with pytest.raises(RunFailed, match="as it was"):
            await (await get_run(run.id)).result()
