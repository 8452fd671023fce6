"""Which engine the functions of the API speak to.

In order: the one whose step is executing; the one this process opened last; or a default one,
opened on first use at the default place (see `holdfast.place`).
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.runtime.engine import Engine

_of_step: ContextVar[Engine | None] = ContextVar("holdfast_engine", default=None)
_opened: list[Engine] = []
_opening: dict[asyncio.AbstractEventLoop, asyncio.Task[Any]] = {}


def set_engine(engine: Engine) -> None:
    """Name the engine of the executing step."""
    _of_step.set(engine)


def push(engine: Engine) -> None:
    _opened.append(engine)


def pop(engine: Engine) -> None:
    _opened.remove(engine)


async def current_engine() -> Engine:
    """The engine to use here; see the module's text."""
    found = _of_step.get() or (_opened[-1] if _opened else None)
    if found is not None:
        return found
    loop = asyncio.get_running_loop()
    if loop not in _opening:
        ready: asyncio.Future[Engine] = loop.create_future()
        _opening[loop] = loop.create_task(_serve_default(ready))
        return await ready
    return _opened[-1]


async def _serve_default(ready: asyncio.Future[Engine]) -> None:
    """Open the default engine, and close it when the loop ends and cancels us."""
    from holdfast.runtime.app import open_engine

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
        del _opening[asyncio.get_running_loop()]
