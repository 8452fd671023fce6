"""A run's record: the run with the beginning of what it did, and the rest a page at a time.

An answer is bounded, whatever the run did: so many steps, calls, sandboxes and commands, and so
many bytes of each.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from holdfast.errors import NotFound
from holdfast.runtime.step_records import records_of
from holdfast.server import views
from holdfast.server.dependencies import TheEngine, TheInspection, TheRun, TheSandboxes
from holdfast.server.replies import Json
from holdfast.server.schemas import (
    ERRORS,
    CallPage,
    CommandPage,
    PublishedShown,
    RunDetail,
    SandboxPage,
    StepPage,
)
from holdfast.server.strict_json import StrictRoute

router = APIRouter(prefix="/api/runs", tags=["runs"], route_class=StrictRoute, responses=ERRORS)

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
    if len(journal) > LONG_JOURNAL:
        return await asyncio.to_thread(lambda: Json(views.run_detail(run, journal, did, published)))
    return Json(views.run_detail(run, journal, did, published))


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
