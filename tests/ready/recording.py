"""Recorded runs of a project: its workflows on a real engine and store, steps and models stood in for.

python -m ready.recording PROJECT        runs each example once, to its end; then one for `bob`, who
                                         never replies: it is left waiting
"""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast import decide, list_approvals, send_event, session, start
from holdfast.ready import project
from holdfast.ready.drill import Stage, agreeable
from holdfast.ready.source_code import Sources
from holdfast.records import WAIT_CREATED
from holdfast.runtime.client import RunHandle
from holdfast.runtime.engine import Engine
from holdfast.runtime.settings import Settings
from holdfast.store import opener
from holdfast.store.base import Store
from waiting import LIMIT


async def _agree() -> None:
    for asked in await list_approvals():
        if asked.status == "pending":
            await decide(asked.id, True, by="test")


async def _left_waiting(store: Store, run: RunHandle[Any]) -> None:
    """Until the run waits for its customer."""
    async with asyncio.timeout(LIMIT):
        while not any(
            event.type == WAIT_CREATED and event.facts["name"] == "customer.replied"
            for event in await store.load(run.id)
        ):
            await _agree()
            await asyncio.sleep(0.01)


async def _record(stage: Stage) -> None:
    store = opener.runs(stage.project.store, "wkr_recording")
    engine = Engine(
        store, worker_id="wkr_recording", settings=Settings(), substitute=stage.stand_in
    )
    await engine.open()
    session.add_engine(engine)
    session.add_store(stage.project.store)
    try:
        for flow, args, kwargs in stage.inputs():
            run = await start(flow, *args, **kwargs)
            result = asyncio.ensure_future(run.result())
            while not result.done():
                await _agree()
                await send_event("customer.replied", {"customer": "ada"})
                await asyncio.wait([result], timeout=0.05)
            await result
            others = [replace(each, customer="bob") for each in args]
            await _left_waiting(store, await start(flow, *others, **kwargs))
    finally:
        session.remove_engine(engine)
        await engine.close()
        await session.remove_store(stage.project.store)


if __name__ == "__main__":
    root = Path(sys.argv[1])
    (root / ".holdfast").mkdir(exist_ok=True)
    loaded = project.load(root)
    stage = Stage(loaded, Sources(loaded), agreeable)
    stage.set()
    asyncio.run(_record(stage))
