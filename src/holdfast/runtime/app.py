"""Opening Holdfast in a process: a store, and unless told otherwise a worker on it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast import config, place
from holdfast.ids import new_id
from holdfast.runtime import ambient
from holdfast.runtime.engine import Engine
from holdfast.runtime.settings import Settings
from holdfast.store.sqlite.store import SqliteStore


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
    path = Path(path) if path is not None else place.default_store()
    store = SqliteStore(path, name)
    chosen = settings or config.section("runtime", Settings)
    engine = Engine(store, worker_id=name, settings=chosen, works=worker)
    await engine.open()
    ambient.push(engine)
    place.enter(path)
    try:
        yield engine
    finally:
        ambient.pop(engine)
        try:
            await engine.close(grace)
        finally:
            await place.leave(path)
