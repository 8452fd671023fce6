"""Opening Holdfast in a process: a store, and unless told otherwise a worker on it.

The functions of the API speak to `current_engine()`: the one whose step is executing, the one
this process opened last, or a default one that is opened on first use.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from holdfast import config, session
from holdfast.ids import new_id
from holdfast.runtime.engine import Engine
from holdfast.runtime.settings import Settings
from holdfast.store import opener


class _Default(NamedTuple):
    """The default engine of an event loop: once it is open, and the task that keeps it so."""

    ready: asyncio.Future[Engine]
    keeper: asyncio.Task[None]


_defaults: dict[asyncio.AbstractEventLoop, _Default] = {}


@asynccontextmanager
async def open_engine(
    path: str | Path | None = None,
    *,
    worker: bool = True,
    settings: Settings | None = None,
    grace: float = 0.0,
) -> AsyncGenerator[Engine]:
    """Open the store at `path` and work on it until the block ends.

    `worker=False`: only start and watch runs; others carry them out. `grace`: how long steps
    under way may take to finish at the end of the block, in seconds; what does not finish is
    done again by whoever goes on with the run.

    >>> async with open_engine("jobs.db"):
    ...     run = await start(evaluate, "…")
    ...     print(await run.result())
    """
    name = new_id("wkr" if worker else "cli")
    store_name = str(path) if path is not None else session.default_store()
    store = opener.runs(store_name, name)
    chosen = settings or config.section("runtime", Settings)
    engine = Engine(store, worker_id=name, settings=chosen, works=worker, clock=store.clock)
    await engine.open()
    session.add_engine(engine)
    session.add_store(store.name)
    try:
        yield engine
    finally:
        session.remove_engine(engine)
        try:
            await engine.close(grace)
        finally:
            await session.remove_store(store.name)


async def current_engine() -> Engine:
    """The engine to use here; see the module's text."""
    found: Engine | None = session.opened_engine()
    if found is not None:
        return found
    loop = asyncio.get_running_loop()
    if loop not in _defaults:
        ready: asyncio.Future[Engine] = loop.create_future()
        _defaults[loop] = _Default(ready, loop.create_task(_keep_default(ready)))
    # Shielded: others may wait for the same engine when one of them is cancelled.
    return await asyncio.shield(_defaults[loop].ready)


async def _keep_default(ready: asyncio.Future[Engine]) -> None:
    """Open the default engine, and close it when the loop ends and cancels us."""
    try:
        async with open_engine() as engine:
            ready.set_result(engine)
            await asyncio.get_running_loop().create_future()
    except BaseException as error:
        if not ready.done():
            ready.set_exception(error)
            return
        raise
    finally:
        del _defaults[asyncio.get_running_loop()]
