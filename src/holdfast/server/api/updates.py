"""Updates: events that a run answers."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from holdfast.errors import NotFound, UpdateTimeout
from holdfast.ids import new_id
from holdfast.records.live import UpdateRecord
from holdfast.runtime import updates
from holdfast.runtime.engine import Engine
from holdfast.server.dependencies import TheEngine, TheRun
from holdfast.server.replies import Json
from holdfast.server.requests import SendUpdate
from holdfast.server.schemas import ERRORS, UpdateShown
from holdfast.server.strict_json import StrictRoute

router = APIRouter(
    prefix="/api/runs/{run_id}/updates", tags=["updates"], route_class=StrictRoute, responses=ERRORS
)

PENDING: dict[int | str, dict[str, Any]] = {
    202: {"model": UpdateShown, "description": "not answered yet: ask for it again"}
}


class UpdateQuery(BaseModel):
    """How long to wait."""

    model_config = ConfigDict(extra="forbid")

    wait: float = Field(default=0.0, ge=0, le=300, description="for the answer, in seconds")


@router.post("", response_model=UpdateShown, responses=PENDING)
async def send_update(engine: TheEngine, run: TheRun, body: SendUpdate) -> Response:
    """Send the run an update and wait for its answer; 202 if that takes longer than `wait`."""
    sent = await updates.send(engine, run.id, body.name, body.payload, body.id or new_id("upd"))
    return await _answered(engine, run.id, sent, body.wait)


@router.get("/{update_id:path}", response_model=UpdateShown, responses=PENDING)
async def show_update(
    engine: TheEngine, run: TheRun, update_id: str, query: Annotated[UpdateQuery, Query()]
) -> Response:
    """An update and its answer; 202 if it has none yet."""
    found = await engine.store.update(run.id, update_id)
    if found is None:
        raise NotFound(f"{run.id} has no update {update_id[:100]!r}")
    return await _answered(engine, run.id, found, query.wait)


async def _answered(engine: Engine, run_id: str, sent: UpdateRecord, wait: float) -> Json:
    if not sent.ended and wait > 0:
        try:
            sent = await updates.ended(engine, run_id, sent.id, wait)
        except UpdateTimeout:
            return Json(sent.as_json(), 202)
    return Json(sent.as_json(), 200 if sent.ended else 202)
