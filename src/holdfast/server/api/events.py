"""Events: the log of all runs, live; events, updates and webhooks that others send to runs."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import NotFound, UpdateTimeout, UsageError, WrongMediaType
from holdfast.ids import new_id
from holdfast.records.live import UpdateRecord
from holdfast.runtime import updates
from holdfast.runtime.client import receive_webhook, send_event
from holdfast.runtime.engine import Engine
from holdfast.server import views
from holdfast.server.api.runs import STREAM, EventsQuery, LastEventId
from holdfast.server.api.workflows import checked_key
from holdfast.server.change_feed import last_event_id
from holdfast.server.dependencies import Accept, TheEngine, TheFeed, TheRun, TheSettings, wants_json
from holdfast.server.replies import Json
from holdfast.server.requests import SendEvent, SendUpdate, StrictRoute, parse
from holdfast.server.schemas import (
    ERRORS,
    Alive,
    EventPage,
    EventSent,
    HoldList,
    SubscriptionList,
    UpdateShown,
)
from holdfast.server.sse import EventStream

router = APIRouter(route_class=StrictRoute, responses=ERRORS)


@router.get("/api/events", tags=["events"], response_model=EventPage, responses=STREAM)
async def all_events(
    engine: TheEngine,
    feed: TheFeed,
    settings: TheSettings,
    query: Annotated[EventsQuery, Query()],
    accept: Accept = "",
    last: LastEventId = None,
) -> Response:
    """The log of all runs, live from now on, or from behind `after`; as JSON a page of it."""
    given = last_event_id(last)
    after = query.after if given is None else given
    if wants_json(accept):
        page = await engine.store.log(after or 0, query.limit)
        shown = [e for e in page if not query.type or e.type.startswith(tuple(query.type))]
        place = page[-1].log if page else after or 0
        return Json({"events": [views.event_json(event) for event in shown], "after": place})
    feed.check_room()
    frames = feed.follow(after, types=query.type, touch=query.wanted())
    return EventStream(frames, settings.stall_seconds)


@router.post("/api/events", tags=["events"], status_code=202, response_model=EventSent)
async def send(body: SendEvent) -> Response:
    """Send an event to the runs that wait for it, or will."""
    event_id = body.id or new_id("evt")
    is_new = await send_event(body.name, body.payload, id=event_id, run=body.run)
    sent = {"id": event_id, "name": body.name, "run": body.run, "repeated": not is_new}
    return Json(sent, 202)


@router.get("/api/holds", tags=["steering"], response_model=HoldList)
async def holds(engine: TheEngine) -> Response:
    """The runs that nobody may delete, the latest first."""
    return Json({"holds": [each.as_json() for each in await engine.store.holds()]})


@router.get("/api/subscriptions", tags=["events"], response_model=SubscriptionList)
async def subscriptions(engine: TheEngine) -> Response:
    """The events that start runs and cancel them, by workflow."""
    found = await engine.store.subscriptions()
    return Json({"subscriptions": [each.as_json() for each in found]})


# --- updates: events that a run answers ---

UPDATES = "/api/runs/{run_id}/updates"
PENDING: dict[int | str, dict[str, Any]] = {
    202: {"model": UpdateShown, "description": "not answered yet: ask for it again"}
}


class UpdateQuery(BaseModel):
    """How long to wait."""

    model_config = ConfigDict(extra="forbid")

    wait: float = Field(default=0.0, ge=0, le=300, description="for the answer, in seconds")


@router.post(UPDATES, tags=["updates"], response_model=UpdateShown, responses=PENDING)
async def send_update(engine: TheEngine, run: TheRun, body: SendUpdate) -> Response:
    """Send the run an update and wait for its answer; 202 if that takes longer than `wait`."""
    sent = await updates.send(engine, run.id, body.name, body.payload, body.id or new_id("upd"))
    return await _answered(engine, run.id, sent, body.wait)


@router.get(
    UPDATES + "/{update_id:path}", tags=["updates"], response_model=UpdateShown, responses=PENDING
)
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


# --- webhooks: what others post to a run's own URL ---
# The path is the permission: its token can't be guessed, and who has it needs no other. The body
# is handed to the run as it is meant: JSON as the value, a form as its fields, else as text.

ID_HEADERS = ("idempotency-key", "webhook-id")
"""The second is what the Standard Webhooks specification names."""
MAX_FIELDS = 1000
ANYTHING: dict[str, Any] = {
    "requestBody": {
        "content": {
            "application/json": {"schema": {}},
            "application/x-www-form-urlencoded": {"schema": {"type": "object"}},
            "text/plain": {"schema": {"type": "string"}},
        }
    }
}


@router.post(
    "/hooks/{token}",
    tags=["webhooks"],
    status_code=202,
    response_model=Alive,
    openapi_extra=ANYTHING,
)
async def webhook(request: Request, token: str) -> Response:
    """Hand the body to the run that waits for it. Needs no other token than the path's."""
    payload = payload_of(request.headers.get("content-type", ""), await request.body())
    given = next((found for name in ID_HEADERS if (found := request.headers.get(name))), None)
    key = checked_key(given)
    # Senders choose ids for themselves: those of one hook must not silence another's.
    mine = hashlib.blake2b(token.encode("utf-8", "replace"), digest_size=12).hexdigest()
    await receive_webhook(token, payload, id=None if key is None else f"hook:{mine}:{key}")
    return Json({"ok": True}, 202)


def payload_of(content_type: str, body: bytes) -> Any:
    """What a body says."""
    if not body:
        return None
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return parse(body)
    if kind.startswith("multipart/"):
        raise WrongMediaType("a webhook takes JSON, a plain form or text, no multipart form")
    try:
        text = body.decode("utf-8")
        if kind != "application/x-www-form-urlencoded":
            return text
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError as error:
        raise UsageError("the body is no UTF-8 text, or has too many fields") from error
    return {name: values if len(values) > 1 else values[0] for name, values in fields.items()}
