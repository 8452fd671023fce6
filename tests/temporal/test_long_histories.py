"""Runs that outgrow a history of Temporal's go on with a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import engine_flows as flows
import pytest
from dev_server import DevServer
from test_engines import until

from holdfast import open_engine, send_event, start
from holdfast.runtime.client import RunHandle


async def continued_from(engine: Any, handle: RunHandle[Any]) -> str:
    """The history before the run's last one."""
    history = await engine._client.get_workflow_handle(handle.id).fetch_history()
    began = history.events[0].workflow_execution_started_event_attributes
    return began.continued_execution_run_id


@pytest.mark.parametrize("limit", ["HISTORY_EVENTS", "HISTORY_MEGABYTES"])
async def test_a_run_goes_on_with_a_new_history_between_two_steps(
    tmp_path: Path, server: DevServer, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setenv(f"HOLDFAST_TEMPORAL_{limit}", "40" if limit.endswith("EVENTS") else "0.01")
    monkeypatch.setenv("HOLDFAST_TEMPORAL_CACHED_RUNS", "0")  # every task decides it again
    engine: Any
    async with open_engine(tmp_path / "runs.db", engine=server.url()) as engine:
        handle = await start(flows.outgrows, 8)
        await send_event("goes on")
        assert await handle.result() == 56
        assert await continued_from(engine, handle)
        steps = await handle.steps()
        assert [s.attempts for s in steps if s.name == "add"] == [1] * 16
        assert (await handle.record()).attributes == {"round": 7}
        seqs = [event.seq for event in await handle.events()]
        assert seqs == list(range(1, len(seqs) + 1))


async def test_a_history_that_is_far_too_long_waits_for_the_step_under_way(
    tmp_path: Path, server: DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_TEMPORAL_HISTORY_EVENTS", "10")
    engine: Any
    async with open_engine(tmp_path / "runs.db", engine=server.url()) as engine:
        handle = await start(flows.holds_on, 12, "held")
        handed = engine._client.get_workflow_handle(handle.id)

        async def is_too_long() -> bool:
            begun = flows.DONE["held began"] > 0
            return begun and (await handed.describe()).history_length >= 40

        await until(is_too_long)
        flows.DONE["held"] += 1
        assert await handle.result() == 66 + 1000
        assert await continued_from(engine, handle)
        assert flows.DONE["held began"] == 1
