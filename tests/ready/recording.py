"""Recorded runs of a project: its workflows on a real engine and store, steps and models stood in for.

python -m ready.recording PROJECT        runs each example once, to its end
"""

import asyncio
import sys
from pathlib import Path

from holdfast import decide, list_approvals, send_event, session, start
from holdfast.ready import project
from holdfast.ready.drill import Stage, agreeable
from holdfast.ready.source_code import Sources
from holdfast.runtime.engine import Engine
from holdfast.runtime.settings import Settings
from holdfast.store import opener


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
                for asked in await list_approvals():
                    if asked.status == "pending":
                        await decide(asked.id, True, by="test")
                await send_event("customer.replied", {"customer": "ada"})
                await asyncio.wait([result], timeout=0.05)
            await result
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
