"""Schedules: what starts runs by the clock; making, pausing, triggering and backfilling them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from holdfast.durations import seconds
from holdfast.records.schedules import CatchUp, Firing, FiringOutcome, Overlap, Schedule
from holdfast.runtime.cron import ScheduleSpec, parse_timing
from holdfast.runtime.definitions import registered
from holdfast.runtime.engine import Engine
from holdfast.runtime.schedules import (
    ScheduleHandle,
    get_schedule,
    list_schedules,
    next_firings,
    put_schedule,
)
from holdfast.server.dependencies import TheEngine
from holdfast.server.replies import Json
from holdfast.server.requests import Name, RequestBody, StrictRoute
from holdfast.server.schemas import ERRORS, Reply

router = APIRouter(tags=["schedules"], route_class=StrictRoute, responses=ERRORS)

SHOWN_NEXT = 5
ONE = "/api/schedules/{name}"


class FiringShown(Reply):
    """One moment of a schedule, and what became of it."""

    schedule: str
    at: float
    outcome: FiringOutcome
    noted_at: float
    run_id: str | None
    until: float | None
    error: str | None


class ScheduleShown(Reply):
    """A schedule. Times are seconds since 1970, UTC."""

    name: str
    workflow: str
    timing: str
    input: dict[str, Any]
    created_at: float
    overlap: Overlap
    catch_up: CatchUp
    jitter: float
    attributes: dict[str, Any]
    in_code: bool
    paused: bool
    paused_at: float | None
    next_at: float | None
    due_at: float | None
    last_at: float | None
    last_run: str | None
    queued: int
    revision: int
    next: list[float]
    firings: list[FiringShown]


class ScheduleList(Reply):
    schedules: list[ScheduleShown]


class Triggered(Reply):
    run: str | None = Field(description="null: it waits for the run before it")


class Backfilled(Reply):
    started: int
    queued: int
    existed: int


class PutSchedule(RequestBody):
    """A schedule as it is to be."""

    workflow: Name
    timing: str = Field(
        min_length=1, max_length=200, description="'0 7 * * MON-FRI Europe/Berlin', or 'every 15m'"
    )
    input: dict[str, Any] = Field(default={}, description="the workflow's arguments, by name")
    overlap: Overlap = "skip"
    catch_up: CatchUp = "one"
    jitter: str | float = Field(default=0.0, description='seconds, or text such as "90s"')
    attributes: dict[Name, str | int | float | bool] = Field(default={}, max_length=50)

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"workflow": "report", "timing": "0 7 * * MON-FRI Europe/Berlin"}]
        }
    )


class BackfillRange(RequestBody):
    """Which moments to run for."""

    start: float = Field(ge=0, le=1e11, description="seconds since 1970, UTC")
    end: float = Field(ge=0, le=1e11, description="not included")


class NextQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    next: int = Field(default=SHOWN_NEXT, ge=0, le=100, description="how many firings ahead")


def shown(
    schedule: Schedule, engine: Engine, firings: list[Firing], count: int = SHOWN_NEXT
) -> dict[str, Any]:
    """A schedule as it is answered."""
    return {
        **schedule.as_json(),
        "next": next_firings(schedule, engine.clock.now(), count),
        "firings": [each.as_json() for each in firings],
    }


@router.get("/api/schedules", response_model=ScheduleList)
async def schedules(engine: TheEngine) -> Response:
    """All schedules, by name, with their next firings."""
    return Json({"schedules": [shown(each, engine, []) for each in await list_schedules()]})


@router.get(ONE, response_model=ScheduleShown)
async def schedule(engine: TheEngine, name: str, query: Annotated[NextQuery, Query()]) -> Response:
    """A schedule, its next firings, and what became of the last."""
    return await _shown(engine, await get_schedule(name[:200]), query.next)


@router.put(ONE, response_model=ScheduleShown)
async def make_schedule(engine: TheEngine, name: str, body: PutSchedule) -> Response:
    """Make a schedule, or change the one of this name; the same again changes nothing."""
    spec = ScheduleSpec(
        parse_timing(body.timing),
        name[:201],
        body.overlap,
        body.catch_up,
        seconds(body.jitter),
        attributes=dict(body.attributes),
    )
    input = json.dumps(body.input, ensure_ascii=False).encode()
    workflow = registered().get(body.workflow)
    if workflow is not None:  # other workers may know others: they say in the firing what is wrong
        args, kwargs = workflow.signature.decode_arguments(input)
        input = workflow.signature.encode_arguments(args, kwargs, engine.settings.max_payload)
    made = await put_schedule(engine, body.workflow, spec, input)
    return await _shown(engine, ScheduleHandle(made.name), SHOWN_NEXT)


@router.delete(ONE, status_code=204)
async def delete_schedule(name: str) -> Response:
    """Remove a schedule; the runs it has started go on."""
    await (await get_schedule(name[:200])).delete()
    return Response(status_code=204)


@router.post(ONE + "/trigger", status_code=202, response_model=Triggered)
async def trigger_schedule(name: str) -> Response:
    """Fire now, besides its times."""
    return Json({"run": await (await get_schedule(name[:200])).trigger()}, 202)


@router.post(ONE + "/backfill", status_code=202, response_model=Backfilled)
async def backfill_schedule(name: str, body: BackfillRange) -> Response:
    """Run for the moments of a stretch of time that have no run yet."""
    handle = await get_schedule(name[:200])
    start, end = (datetime.fromtimestamp(at, UTC) for at in (body.start, body.end))
    return Json((await handle.backfill(start, end))._asdict(), 202)


@router.post(ONE + "/{action}", response_model=ScheduleShown)
async def pause_or_resume_schedule(
    engine: TheEngine, name: str, action: Literal["pause", "resume"]
) -> Response:
    """Make no more firings; or go on from now, without what fell into the pause."""
    handle = await get_schedule(name[:200])
    await (handle.pause() if action == "pause" else handle.resume())
    return await _shown(engine, handle, SHOWN_NEXT)


async def _shown(engine: Engine, handle: ScheduleHandle, count: int) -> Response:
    return Json(shown(await handle.record(), engine, await handle.firings(), count))
