"""Events: those of all runs, live; those that others send to runs; webhooks."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from holdfast.server import views
from holdfast.server.api.runs import EventsQuery, LastEventId
from holdfast.server.asking import Accept, TheEngine, TheFeed, TheSettings, wants_json
from holdfast.server.bodies import StrictRoute
from holdfast.server.live import last_event_id
from holdfast.server.replies import Json
from holdfast.server.sse import EventStream

router = APIRouter(tags=["events"], route_class=StrictRoute)


@router.get("/api/events")
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
    return EventStream(feed.follow(after, types=query.type), settings.stall_seconds)
