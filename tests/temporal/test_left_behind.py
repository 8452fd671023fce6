"""Runs that Temporal and the store do not agree on, after a death or by other means."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from dev_server import DevServer
from engine_flows import counts, pauses
from test_engines import is_open, until

from holdfast import RunCancelled, get_run, open_engine, start
from holdfast.records import Worker


async def test_a_run_whose_worker_died_before_it_was_started_is_started(
    tmp_path: Path, server: DevServer
) -> None:
    store, address = tmp_path / "runs.db", server.url()
    async with open_engine(store, worker=False) as desk:
        # Claimed, and then nothing: as a worker that is killed in between leaves it.
        owner = f"temporal:default/{address.rpartition('=')[2]}"
        me = Worker(owner, 0, "here", 0.0, 0.0, lease_seconds=1e10)
        new = counts.new_run(counts.signature.encode_arguments((2,), {}), None, desk.clock.now())
        created = await desk.store.create(new, me)
        assert created.claim is not None
    async with open_engine(store, engine=address):
        assert await (await get_run(new.id)).result() == [0, 1]


async def test_a_run_that_temporal_has_terminated_is_ended_in_the_store(
    tmp_path: Path, server: DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.temporal import bridge

    monkeypatch.setattr(bridge, "LOOK_SECONDS", 0.1)
    engine: Any
    async with open_engine(tmp_path / "runs.db", engine=server.url()) as engine:
        handle = await start(pauses, "terminated")
        await until(lambda: is_open(handle, "terminated 0"))
        await engine._client.get_workflow_handle(handle.id).terminate()
        async with asyncio.timeout(200):
            with pytest.raises(RunCancelled, match="terminated"):
                await handle.result()
