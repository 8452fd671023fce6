"""Opening Holdfast in a process: a store, and unless told otherwise a worker on it.

The functions of the API speak to `current_engine()`: the one whose step is executing, the one
this process opened last, or a default one that is opened on first use.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from holdfast import config, session
from holdfast.errors import UsageError
from holdfast.ids import new_id
from holdfast.runtime.engine import Engine
from holdfast.runtime.settings import Settings
from holdfast.store import opener

ENGINES = {"temporal": "holdfast.temporal.bridge"}
"""Engines beside the local one, by the scheme of their addresses: modules with `make_engine`."""


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
    engine: str | None = None,
) -> AsyncGenerator[Engine]:
    """Open the store at `path` and work on it until the block ends.

    `worker=False`: only start and watch runs; others carry them out. `grace`: how long steps
    under way may take to finish at the end of the block, in seconds; what does not finish is
    done again by whoever goes on with the run. `engine`: where runs are carried out, such as
    `temporal://127.0.0.1:7233/default`; without it, and HOLDFAST_ENGINE, in this process.

    >>> async with open_engine("jobs.db"):
    ...     run = await start(evaluate, "…")
    ...     print(await run.result())
    """
    name = new_id("wkr" if worker else "cli")
    store_name = str(path) if path is not None else session.default_store()
    store = opener.runs(store_name, name)
    chosen = settings or config.section("runtime", Settings)
    address = engine or config.engine()
    make = _engine_at(address) if worker and address is not None else Engine
    opened = make(store, worker_id=name, settings=chosen, works=worker, clock=store.clock)
    await opened.open()
    session.add_engine(opened)
    session.add_store(store.name)
    try:
        yield opened
    finally:
        session.remove_engine(opened)
        try:
            await opened.close(grace)
        finally:
            await session.remove_store(store.name)


def _engine_at(address: str) -> Callable[..., Engine]:
    """The engine that an address means; its package is not everybody's, and above this one."""
    scheme = address.partition("://")[0]
    if scheme not in ENGINES:
        known = ", ".join(f"{name}://…" for name in ENGINES)
        raise UsageError(f"{address} is no engine", hint=f"there is {known}")
    try:
        module = importlib.import_module(ENGINES[scheme])
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package == "holdfast":
            raise
        raise UsageError(
            f"the engine {scheme} needs {package}, which is not installed here",
            hint=f"pip install {package}",
        ) from missing
    return functools.partial(module.make_engine, address)


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
