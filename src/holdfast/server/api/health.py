"""Whether the server can do its work: `/healthz` for probes, `/api/health` for people."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.responses import Response

from holdfast import __version__
from holdfast.errors import ServerUnavailable
from holdfast.runtime.engine import Engine
from holdfast.server.dependencies import TheEngine, TheFeed
from holdfast.server.replies import Json
from holdfast.server.schemas import ERRORS, Alive, Health

router = APIRouter(tags=["health"], responses=ERRORS)

LOOK_SECONDS = 5.0


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", response_model=Alive)
async def healthz(engine: TheEngine, feed: TheFeed) -> Response:
    """200 if the store can be read and the server is not being stopped. Needs no token."""
    if feed.closed.is_set():
        raise ServerUnavailable("the server is being stopped")
    await _log_end(engine)
    return Json({"ok": True})


@router.get("/api/health", response_model=Health)
async def health(engine: TheEngine) -> Response:
    """The version, the store, and who carries out runs."""
    end = await _log_end(engine)
    workers = await engine.store.workers()
    return Json(
        {
            "ok": True,
            "version": __version__,
            "store": engine.store.name,
            "log": end,
            "works": engine.works,
            "runs_in_memory": len(engine.runs),
            "workers": [
                {"id": worker.id, "pid": worker.pid, "host": worker.host, "runs": worker.runs}
                for worker in workers
            ],
        }
    )


async def _log_end(engine: Engine) -> int:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return await engine.store.log_end()
    except TimeoutError:
        raise ServerUnavailable("the store does not answer") from None
