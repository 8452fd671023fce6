"""Events: those of all runs, live; those that others send to runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from holdfast.ids import new_id
from holdfast.runtime.client import send_event
from holdfast.server import views
from holdfast.server.api.runs import STREAM, EventsQuery, LastEventId
from holdfast.server.change_feed import last_event_id
from holdfast.server.dependencies import Accept, TheEngine, TheFeed, TheSettings, wants_json
from holdfast.server.replies import Json
from holdfast.server.requests import SendEvent
from holdfast.server.schemas import ERRORS, EventPage, EventSent
from holdfast.server.sse import EventStream
from holdfast.server.strict_json import StrictRoute

router = APIRouter(tags=["events"], route_class=StrictRoute, responses=ERRORS)


@router.get("/api/events", response_model=EventPage, responses=STREAM)
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


@router.post("/api/events", status_code=202, response_model=EventSent)
async def send(body: SendEvent) -> Response:
    """Send an event to the runs that wait for it, or will."""
    event_id = body.id or new_id("evt")
    is_new = await send_event(body.name, body.payload, id=event_id, run=body.run)
    sent = {"id": event_id, "name": body.name, "run": body.run, "repeated": not is_new}
    return Json(sent, 202)
