"""Whether the server can do its work: `/healthz`, `/readyz` and `/metrics` for probes and monitors,
`/api/health` for people."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from holdfast import __version__
from holdfast.errors import ServerUnavailable
from holdfast.server.dependencies import TheEngine, TheFeed
from holdfast.server.probes import TEXT, Numbers, check_alive, check_ready
from holdfast.server.replies import Json
from holdfast.server.schemas import ERRORS, Alive, Health

router = APIRouter(tags=["health"], responses=ERRORS)


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", response_model=Alive)
async def healthz(engine: TheEngine, feed: TheFeed) -> Response:
    """200 if the store can be read and the server is not being stopped. Needs no token."""
    if feed.closed.is_set():
        raise ServerUnavailable("the server is being stopped")
    await check_alive(engine)
    return Json({"ok": True})


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", response_model=Alive)
async def readyz(engine: TheEngine, feed: TheFeed) -> Response:
    """200 if the server should be given requests. Needs no token."""
    if feed.closed.is_set():
        raise ServerUnavailable("the server is being stopped")
    await check_ready(engine)
    return Json({"ok": True})


@router.get("/metrics", include_in_schema=False)
async def metrics(request: Request) -> Response:
    """The store's numbers, as Prometheus reads them."""
    numbers: Numbers = request.app.state.numbers
    return PlainTextResponse(await numbers.text(), media_type=TEXT)


@router.get("/api/health", response_model=Health)
async def health(engine: TheEngine) -> Response:
    """The version, the store, and who carries out runs."""
    end = await check_alive(engine)
    workers = await engine.store.workers()
    return Json(
        {
            "ok": True,
            "version": __version__,
            "store": engine.store.name,
            "log": end,
            "works": engine.works,
            "runs_in_memory": len(engine.in_hand),
            "workers": [
                {"id": worker.id, "pid": worker.pid, "host": worker.host, "runs": worker.runs}
                for worker in workers
            ],
        }
    )
