"""What somebody sees who looks at Temporal itself: names, memo, search attributes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dev_server import DevServer
from engine_flows import engine_parent, knows_itself, pauses
from test_engines import has_status, is_open, until

from holdfast import list_runs, open_engine, send_event, start


async def test_runs_are_found_there_by_what_they_are_known_by(
    tmp_path: Path, server: DevServer
) -> None:
    engine: Any
    async with open_engine(tmp_path / "runs.db", engine=server.url()) as engine:
        handle = await start(knows_itself.options(key="order-17"), "ada")
        await until(lambda: is_open(handle, "@webhook/0/4"))
        client = engine._client

        async def found(query: str) -> list[Any]:
            return [each async for each in client.list_workflows(query)]

        by_key = await until(lambda: found("HoldfastKey = 'order-17'"))
        assert [(each.id, each.workflow_type) for each in by_key] == [(handle.id, "knows_itself")]
        both = f"HoldfastAttributes = 'customer=ada' AND WorkflowId = '{handle.id}'"
        assert [each.id for each in await until(lambda: found(both))] == [handle.id]
        memo = await by_key[0].memo()
        assert memo["key"] == "order-17"
        described = await client.get_workflow_handle(handle.id).describe()
        assert (await described.memo())["attributes"] == {"customer": "ada"}
        assert await described.static_summary() == "knows_itself order-17"
        parent = await start(engine_parent)
        await parent.result()
        children = await until(lambda: found(f"HoldfastParent = '{parent.id}'"))
        assert {each.workflow_type for each in children} == {"engine_child"}
        await handle.cancel()


async def test_with_a_key_nothing_of_the_data_is_told(
    tmp_path: Path, server: DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
    monkeypatch.setenv("HOLDFAST_TEMPORAL_ENCRYPTION_KEY", key)
    engine: Any
    async with open_engine(tmp_path / "runs.db", engine=server.url()) as engine:
        handle = await start(knows_itself.options(key="secret-key"), "secret-name")
        await until(lambda: is_open(handle, "@webhook/0/4"))
        described = await engine._client.get_workflow_handle(handle.id).describe()
        told = described.raw_description.SerializeToString()
        assert b"secret" not in told and b"HoldfastVersion" in told
        await handle.cancel()


async def test_a_hole_in_the_copy_is_filled_from_the_history(
    tmp_path: Path, server: DevServer
) -> None:
    """As a store has it that was restored from a backup: the run is there, its end is not."""
    store, address = tmp_path / "runs.db", server.url()
    async with open_engine(store, engine=address) as engine:
        handle = await start(pauses, "hole")
        await until(lambda: is_open(handle, "hole 0"))
        backup = tmp_path / "backup.db"
        await engine.store.backup(backup)
        for n in range(3):
            await send_event(f"hole {n}")
        assert await handle.result() == 3
        events = [(event.seq, event.type) for event in await handle.events()]
    async with open_engine(backup, engine=address):
        (restored,) = (await list_runs(workflow="pauses")).runs
        from holdfast import get_run

        again = await get_run(restored.id)
        await until(lambda: has_status(again, "completed"))
        assert await again.result() == 3
        assert [(event.seq, event.type) for event in await again.events()] == events
