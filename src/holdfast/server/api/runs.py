"""Runs: list them, read what one did, follow its events and streams."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from starlette.responses import Response

from holdfast.errors import NotFound, UsageError
from holdfast.records import Chunk, Run, Status
from holdfast.runtime.bulk import steer_all
from holdfast.runtime.engine import Engine
from holdfast.runtime.step_records import records_of
from holdfast.sandbox.run_snapshots import delete_orphans
from holdfast.server import sse, views
from holdfast.server.change_feed import Feed, Touch, last_event_id
from holdfast.server.dependencies import (
    Accept,
    TheEngine,
    TheFeed,
    TheInspection,
    TheRun,
    TheSandboxes,
    TheSettings,
    wants_json,
)
from holdfast.server.replies import Json, encoded
from holdfast.server.requests import SteerRuns, StrictRoute
from holdfast.server.schemas import (
    ERRORS,
    CallPage,
    ChunkPage,
    CommandPage,
    EventPage,
    EventShown,
    PublishedShown,
    RunDetail,
    RunPage,
    SandboxPage,
    SteeredRuns,
    StepPage,
)
from holdfast.server.sse import EventStream
from holdfast.store.base import RunFilter

router = APIRouter(prefix="/api/runs", tags=["runs"], route_class=StrictRoute, responses=ERRORS)

STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "as `text/event-stream` live, each event's `id` its place to go on from; "
        "as `application/json` (say so in Accept) a page",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}

LARGEST = 2**63 - 1
RUN_ID = re.compile(r"run_[0-9A-HJKMNP-TV-Z]{26}")

TouchKind = Literal["calls", "sandboxes", "commands", "egress", "approvals", "workers"]
LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", description="where a lost stream goes on from")
]


class RunQuery(BaseModel):
    """Which runs to list; everything given must fit."""

    model_config = ConfigDict(extra="forbid")

    workflow: str | None = Field(default=None, max_length=200)
    status: list[Status] = Field(default=[], description="may be repeated")
    attribute: list[str] = Field(
        default=[], max_length=20, description="NAME=VALUE; may be repeated"
    )
    parent: str | None = Field(default=None, max_length=100, description="children of this run")
    top_level: bool = Field(default=False, description="only runs that no other run started")
    created_after: AwareDatetime | None = None
    created_before: AwareDatetime | None = None
    q: str | None = Field(
        default=None, max_length=200, description="text in id, workflow, key, error or an attribute"
    )
    limit: int = Field(default=50, ge=1, le=1000)
    cursor: str | None = Field(default=None, description="as the last page gave it")


class EventsQuery(BaseModel):
    """From where, and how many."""

    model_config = ConfigDict(extra="forbid")

    after: int | None = Field(
        default=None, ge=0, le=LARGEST, description="place in the log to go on from"
    )
    type: list[str] = Field(
        default=[], max_length=20, description="only types that begin so; repeatable"
    )
    limit: int = Field(default=200, ge=1, le=1000, description="of a page; a stream has no end")
    touch: list[TouchKind] = Field(
        default=[],
        max_length=20,
        description="in a stream, say with `event: touch` that something of these kinds began or "
        "ended, which is not in the log; repeatable",
    )
    mark: str | None = Field(
        default=None, max_length=16, description="of the state that is known, as our pages carry it"
    )

    def wanted(self) -> Touch | None:
        """What is wanted beside the log."""
        return Touch(self.touch, self.mark) if self.touch else None


class StreamQuery(BaseModel):
    """Which stream, and from which piece."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(default="output", max_length=200)
    start: int = Field(default=0, ge=0, le=LARGEST, description="index of the first piece")
    limit: int = Field(default=200, ge=1, le=1000, description="of a page; a stream has no end")


@router.get("", response_model=RunPage)
async def list_runs(engine: TheEngine, query: Annotated[RunQuery, Query()]) -> Response:
    """A page of runs, newest first."""
    if query.cursor is not None and not RUN_ID.fullmatch(query.cursor):
        raise UsageError("the cursor is no cursor", hint="give it as the last page gave it")
    where = RunFilter(
        workflow=query.workflow,
        status=tuple(query.status),
        attributes=dict(attribute(text) for text in query.attribute),
        parent_id=query.parent,
        top_level=query.top_level,
        created_after=_moment(query.created_after),
        created_before=_moment(query.created_before),
        text=query.q,
    )
    page = await engine.store.list_runs(where, query.limit, query.cursor)
    return Json({"runs": [views.run_json(run) for run in page.runs], "cursor": page.cursor})


@router.post("/bulk", response_model=SteeredRuns)
async def steer_runs(engine: TheEngine, body: SteerRuns) -> Response:
    """Cancel, terminate, retry or delete all runs that fit, some at a time."""
    where = RunFilter(
        workflow=body.workflow,
        status=tuple(body.status),
        attributes=dict(body.attributes),
        parent_id=body.parent,
        created_before=body.created_before,
    )
    if where == RunFilter():
        raise UsageError("no filter was given", hint="name a workflow, status, attribute or parent")
    result = await steer_all(engine, body.action, where, dry_run=body.dry_run)
    if body.action == "delete":
        await delete_orphans(engine.store.get)
    return Json(vars(result))


def _moment(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def attribute(text: str) -> tuple[str, Any]:
    """`region=eu` or `attempts=3`: a value that reads as a number or boolean is one."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise UsageError(f"{text[:100]!r} is no attribute", hint="write it as NAME=VALUE")
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return name, value
    return name, parsed if isinstance(parsed, str | int | float | bool) else value


@router.get("/{run_id}/events", response_model=EventPage, responses=STREAM)
async def run_events(
    engine: TheEngine,
    feed: TheFeed,
    settings: TheSettings,
    run: TheRun,
    query: Annotated[EventsQuery, Query()],
    accept: Accept = "",
    last: LastEventId = None,
) -> Response:
    """The run's journal, live until the run has ended; as JSON a page of it."""
    given = last_event_id(last)
    after = query.after or 0 if given is None else given
    if wants_json(accept):
        page = await engine.store.log(after, query.limit, run.id)
        place = page[-1].log if page else after
        shown = [e for e in page if not query.type or e.type.startswith(tuple(query.type))]
        return Json({"events": [views.event_json(event) for event in shown], "after": place})
    feed.check_room()
    frames = feed.follow(after, run_id=run.id, types=query.type, touch=query.wanted())
    return EventStream(frames, settings.stall_seconds)


@router.get("/{run_id}/events/{seq}", response_model=EventShown)
async def run_event(
    engine: TheEngine, run: TheRun, seq: Annotated[int, Path(ge=1, le=LARGEST)]
) -> Response:
    """One event with its whole payload."""
    found = await engine.store.events(run.id, seq - 1, 1)
    if not found or found[0].seq != seq:
        raise NotFound(f"{run.id} has no event {seq}")
    return Json(views.event_json(found[0], limit=LARGEST))


@router.get("/{run_id}/stream", response_model=ChunkPage, responses=STREAM)
async def run_stream(
    engine: TheEngine,
    feed: TheFeed,
    settings: TheSettings,
    run: TheRun,
    query: Annotated[StreamQuery, Query()],
    accept: Accept = "",
    last: LastEventId = None,
) -> Response:
    """The pieces of one of the run's streams, live until the run has ended; as JSON a page."""
    given = last_event_id(last)
    start = query.start if given is None else given + 1
    if wants_json(accept):
        ended = run.ended
        chunks = await engine.store.chunks(run.id, query.name, start, query.limit)
        shown = [_chunk_json(chunk) for chunk in chunks]
        complete = ended and len(chunks) < query.limit
        return Json({"chunks": shown, "next": start + len(chunks), "complete": complete})
    feed.check_room()
    return EventStream(_pieces(engine, feed, run, query.name, start), settings.stall_seconds)


async def _pieces(
    engine: Engine, feed: Feed, run: Run, name: str, start: int
) -> AsyncGenerator[bytes]:
    async for news in feed.changes():
        if not news:
            yield sse.KEEP_ALIVE
            continue
        found = await engine.store.get(run.id)  # asked first: nothing comes after the end
        while chunks := await engine.store.chunks(run.id, name, start, 100):
            for chunk in chunks:
                yield sse.frame(encoded(_chunk_json(chunk)), id=chunk.index)
            start += len(chunks)
        if found is None or found.ended:
            yield sse.frame(b"{}", event="end")
            return


def _chunk_json(chunk: Chunk) -> dict[str, Any]:
    return {
        "index": chunk.index,
        "data": json.loads(chunk.data),
        "at": chunk.at,
        "step": chunk.step,
        "attempt": chunk.attempt,
    }


# --- a run's record: the run with the beginning of what it did, and the rest a page at a time ---
# An answer is bounded, whatever the run did: so many steps, calls, sandboxes and commands, and so
# many bytes of each.

LONG_JOURNAL = 500
"""Longer ones are put together in a thread, so that runs don't wait for it."""


class PageQuery(BaseModel):
    """From where, and how many."""

    model_config = ConfigDict(extra="forbid")

    after: str | None = Field(
        default=None, max_length=1000, description="as the last page gave it, or a record's link"
    )
    limit: int = Field(
        default=views.PAGE, ge=1, le=1000, description="at most; large ones make a page shorter"
    )


Paged = Annotated[PageQuery, Query()]


@router.get("/{run_id}", response_model=RunDetail)
async def show_run(
    engine: TheEngine, inspection: TheInspection, sandboxes: TheSandboxes, run: TheRun
) -> Response:
    """A run with its first steps, model calls and sandbox commands, and what all came to."""
    journal = await engine.store.load(run.id)  # asked after the run: a result is in it
    published = await engine.store.published(run.id)
    await sandboxes.notice_the_dead()
    did = await inspection.ask(lambda view: view.activity(run.id, views.PAGE))
    queue = await engine.store.queue_place(run.id)

    def shown() -> Response:
        return Json(views.run_detail(run, journal, did, published, queue=queue))

    return await asyncio.to_thread(shown) if len(journal) > LONG_JOURNAL else shown()


@router.get("/{run_id}/published", response_model=dict[str, PublishedShown])
async def run_published(engine: TheEngine, run: TheRun) -> Response:
    """The last value of each name that the run has published."""
    found = await engine.store.published(run.id)
    return Json({each.name: views.published_json(run.id, each) for each in found})


@router.get("/{run_id}/published/{name:path}", response_model=PublishedShown)
async def run_published_value(engine: TheEngine, run: TheRun, name: str) -> Response:
    """The last value that the run has published under this name, whole."""
    for each in await engine.store.published(run.id):
        if each.name == name:
            return Json(views.published_json(run.id, each, limit=len(each.value)))
    raise NotFound(f"{run.id} has published nothing as {name[:100]!r}")


@router.get("/{run_id}/steps", response_model=StepPage)
async def run_steps(engine: TheEngine, run: TheRun, query: Paged) -> Response:
    """A page of the run's steps, in the order they began."""
    journal = await engine.store.load(run.id)

    def page() -> Response:
        return Json(views.step_page(records_of(journal), journal, query.after, query.limit))

    return await asyncio.to_thread(page) if len(journal) > LONG_JOURNAL else page()


@router.get("/{run_id}/calls", response_model=CallPage)
async def run_calls(inspection: TheInspection, run: TheRun, query: Paged) -> Response:
    """A page of the run's model calls, in the order they began."""
    found = await inspection.ask(lambda view: view.activity_calls(run.id, query.after, query.limit))
    return Json(views.call_page(found))


@router.get("/{run_id}/sandboxes", response_model=SandboxPage)
async def run_sandboxes(
    inspection: TheInspection, sandboxes: TheSandboxes, run: TheRun, query: Paged
) -> Response:
    """A page of the run's sandboxes, in the order they were made."""
    await sandboxes.notice_the_dead()
    found = await inspection.ask(
        lambda view: view.activity_sandboxes(run.id, query.after, query.limit)
    )
    return Json(views.sandbox_page(found))


@router.get("/{run_id}/commands", response_model=CommandPage)
async def run_commands(
    inspection: TheInspection, sandboxes: TheSandboxes, run: TheRun, query: Paged
) -> Response:
    """A page of the commands that the run had carried out, in the order they began."""
    await sandboxes.notice_the_dead()
    found = await inspection.ask(
        lambda view: view.activity_commands(run.id, query.after, query.limit)
    )
    return Json(views.command_page(found))
