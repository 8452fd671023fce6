"""Temporal's own Replayer over what our runs have left in its histories."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import engine_flows as flows
from running_engine import Running
from test_engines import is_open, until

from holdfast import send_event, start
from holdfast.runtime.client import RunHandle


def test_temporals_replayer_accepts_the_histories_of_our_runs(tmp_path: Path) -> None:
    from temporalio.client import WorkflowHistory
    from temporalio.worker import Replayer

    from holdfast.temporal.hosted_run import HostedRun

    async def history(engine: Any, handle: RunHandle[Any]) -> WorkflowHistory:
        return await engine._client.get_workflow_handle(handle.id).fetch_history()

    async def case(engine: Any) -> list[WorkflowHistory]:
        waiting = await start(flows.waits_for_orders, 11)
        ended = [
            await start(flows.fans_out, 3),
            await start(flows.time_and_chance),
            await start(flows.tries, "replayed"),
            await start(flows.engine_parent),
        ]
        await asyncio.gather(*(each.result() for each in ended))
        await until(lambda: is_open(waiting, "paid"))
        open_history = await history(engine, waiting)
        await send_event("paid", {"order": 11})
        await send_event("sized-11", {"size": 5})
        await waiting.result()
        return [open_history, *[await history(engine, each) for each in (*ended, waiting)]]

    async def replay(histories: list[WorkflowHistory]) -> None:
        replayer = Replayer(workflows=[HostedRun])
        for each in histories:
            await replayer.replay_workflow(each)

    with Running("temporal", tmp_path / "runs.db") as running:
        histories = running.do(case(running.engine))
        running.do(replay(histories))
    kinds = {
        each.events[0].workflow_execution_started_event_attributes.workflow_type.name
        for each in histories
    }
    assert kinds == {"waits_for_orders", "fans_out", "time_and_chance", "tries", "engine_parent"}
