"""What a route works with: the engine, the settings and the feed that the application holds.

All are `async def`: FastAPI would run plain functions in threads.
"""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Header
from starlette.requests import Request

from holdfast.errors import NotFound, Overloaded
from holdfast.gateway.calls import default_gateway
from holdfast.gateway.gateway import Gateway
from holdfast.records import Run
from holdfast.runtime.engine import Engine
from holdfast.server.change_feed import Feed
from holdfast.server.settings import ServerSettings
from holdfast.store.inspection import Inspection, RunQuery
from holdfast.store.sandboxes import SandboxRecords


async def _engine(request: Request) -> Engine:
    return cast("Engine", request.app.state.engine)


async def _settings(request: Request) -> ServerSettings:
    return cast("ServerSettings", request.app.state.settings)


async def _feed(request: Request) -> Feed:
    return cast("Feed", request.app.state.feed)


async def _gateway(request: Request) -> Gateway:
    """The gateway that the steps of this process call, and its ledger."""
    return cast("Gateway | None", request.app.state.gateway) or default_gateway()


async def _sandboxes(request: Request) -> SandboxRecords:
    return cast("SandboxRecords", request.app.state.sandboxes)


async def _inspection(request: Request) -> Inspection:
    return cast("Inspection", request.app.state.inspection)


TheEngine = Annotated[Engine, Depends(_engine)]
TheSettings = Annotated[ServerSettings, Depends(_settings)]
TheFeed = Annotated[Feed, Depends(_feed)]
TheGateway = Annotated[Gateway, Depends(_gateway)]
TheInspection = Annotated[Inspection, Depends(_inspection)]
TheSandboxes = Annotated[SandboxRecords, Depends(_sandboxes)]


async def the_run(engine: TheEngine, run_id: str) -> Run:
    """The run that the path names."""
    run = await engine.store.get(run_id)
    if run is None:
        raise NotFound(f"there is no run {run_id[:100]}", hint="GET /api/runs lists what there is")
    return run


TheRun = Annotated[Run, Depends(the_run)]
Accept = Annotated[str, Header(include_in_schema=False)]


def wants_json(accept: str) -> bool:
    """Whether a client that could have a stream asks for a page instead."""
    return "application/json" in accept and "text/event-stream" not in accept


async def _room(settings: TheSettings, inspection: TheInspection) -> None:
    """Refuse a start while too many runs wait to begin."""
    most = settings.max_backlog
    if not most:
        return
    waiting = RunQuery(status=("pending", "queued"))
    found = await inspection.ask(lambda view: view.matching_runs(waiting, most))
    if len(found) >= most:
        raise Overloaded(
            f"{most:,} runs wait to begin", hint="try again later, or add workers", retry_after=5.0
        )


RoomForRuns = Depends(_room)
