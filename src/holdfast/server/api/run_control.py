"""Steering runs: cancel, terminate, pause, resume, retry, fork, delete, answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from holdfast.errors import Refused
from holdfast.records import COMPLETIONS, WAIT_CREATED, Event
from holdfast.runtime.client import get_run, send_event
from holdfast.runtime.definitions import registered
from holdfast.runtime.engine import Engine
from holdfast.runtime.forking import UNCHANGED, history_before
from holdfast.sandbox.run_snapshots import delete_orphans
from holdfast.server import views
from holdfast.server.api.workflows import started_reply
from holdfast.server.dependencies import TheEngine, TheRun
from holdfast.server.replies import Json
from holdfast.server.requests import Answer, ForkRun, HoldRun, Nothing, StrictRoute
from holdfast.server.schemas import ERRORS, DeletedRuns, EventSent, RunShown, Started
from holdfast.store.base import Created
from holdfast.store.retention import Hold

router = APIRouter(
    prefix="/api/runs/{run_id}", tags=["steering"], route_class=StrictRoute, responses=ERRORS
)


async def _now(engine: Engine, run_id: str) -> Json:
    run = await engine.store.get(run_id)
    assert run is not None
    return Json(views.run_json(run), 202)


@router.post("/cancel", status_code=202, response_model=RunShown)
async def cancel(engine: TheEngine, run: TheRun, body: Nothing | None = None) -> Response:
    """Ask a run to stop; its `finally` blocks still run."""
    await engine.store.request(run.id, "cancel", engine.clock.now())
    return await _now(engine, run.id)


@router.post("/terminate", status_code=202, response_model=RunShown)
async def terminate(engine: TheEngine, run: TheRun, body: Nothing | None = None) -> Response:
    """End a run that does not heed a cancellation, without its `finally` blocks."""
    await engine.store.request(run.id, "terminate", engine.clock.now())
    return await _now(engine, run.id)


@router.post("/hold", status_code=202, response_model=RunShown)
async def hold_run(engine: TheEngine, run: TheRun, body: HoldRun) -> Response:
    """Let nobody delete the run, nor retention, until it is released."""
    await engine.store.hold(Hold(run.id, body.reason, body.by, engine.clock.now()))
    return await _now(engine, run.id)


@router.post("/release", status_code=202, response_model=RunShown)
async def release_run(engine: TheEngine, run: TheRun, body: Nothing | None = None) -> Response:
    """Let a held run be deleted again."""
    await engine.store.release_hold(run.id)
    return await _now(engine, run.id)


@router.post("/pause", status_code=202, response_model=RunShown)
async def pause(engine: TheEngine, run: TheRun, body: Nothing | None = None) -> Response:
    """Let the steps under way finish, and begin nothing new until the run is resumed."""
    await engine.store.request(run.id, "pause", engine.clock.now())
    return await _now(engine, run.id)


@router.post("/resume", status_code=202, response_model=RunShown)
async def resume(engine: TheEngine, run: TheRun, body: Nothing | None = None) -> Response:
    """Let a paused or stuck run go on."""
    await engine.store.resume(run.id, engine.clock.now())
    return await _now(engine, run.id)


@router.post("/retry", status_code=202, response_model=RunShown)
async def retry(engine: TheEngine, run: TheRun, body: Nothing | None = None) -> Response:
    """Let a failed run go on from where it failed; what succeeded is not done again."""
    await engine.store.retry(run.id, engine.clock.now())
    return await _now(engine, run.id)


@router.post("/delete", response_model=DeletedRuns)
async def delete(engine: TheEngine, run: TheRun, body: Nothing | None = None) -> Response:
    """Delete a run that has ended, with all that belongs to it and the children it has called."""
    deleted = await engine.store.delete(run.id, engine.clock.now())
    await delete_orphans(engine.store.get)
    return Json({"deleted": deleted})


@router.post("/fork", status_code=202, response_model=Started)
async def fork(engine: TheEngine, run: TheRun, body: ForkRun | None = None) -> Response:
    """Start a new run that takes over what this one did before a step."""
    asked = body or ForkRun()
    result = asked.result if "result" in asked.model_fields_set else UNCHANGED
    known = registered().get(run.workflow)
    if asked.step is None and asked.input and known is not None:
        journal = await engine.store.load(run.id)
        first = history_before(journal, None, asked.input, result)[0]
        known.signature.decode_arguments(first.value or b"{}")  # or say what is wrong, now
    handle = await get_run(run.id)
    forked = await handle.fork(asked.step, input=asked.input, result=result)
    return started_reply(Created(await forked.record(), existed=False))


@router.post(
    "/approve",
    status_code=202,
    response_model=EventSent,
    deprecated=True,
    operation_id="answer_by_its_old_name",
)
@router.post("/answer", status_code=202, response_model=EventSent)
async def answer(engine: TheEngine, run: TheRun, body: Answer | None = None) -> Response:
    """Send the event that a run waits for, with a yes or no in it.

    A short form of `POST /api/events`: the event gets the name and the fields that the wait
    matches by, and `approved`. Each wait is answered once. It decides no approval: what a run asks
    of people by `approval(…)` is decided at `/api/approvals/{id}`. `/approve` is its old name.
    """
    asked = body or Answer()
    wait = _open_wait(run.id, await engine.store.load(run.id), asked.step)
    facts = wait.facts
    match: dict[str, Any] = facts.get("match") or {}
    payload = {**asked.payload, **match, "approved": asked.approved}
    if asked.comment is not None:
        payload["comment"] = asked.comment
    event_id = f"answer:{run.id}:{wait.seq}"
    is_new = await send_event(facts["name"], payload, id=event_id, run=run.id)
    sent = {"id": event_id, "name": facts["name"], "run": run.id, "repeated": not is_new}
    return Json(sent, 202)


def _open_wait(run_id: str, journal: Sequence[Event], key: str | None) -> Event:
    """The wait for an event (no timer, no other run) that is meant."""
    closed = {event.key for event in journal if event.type in COMPLETIONS}
    waits = [
        event
        for event in journal
        if event.type == WAIT_CREATED
        and event.key not in closed
        and not event.facts["name"].startswith("@")
        and key in (None, event.key)
    ]
    if not waits:
        raise Refused(
            f"{run_id} waits for no event that could be answered",
            hint="what it asks of people by `approval(…)` is at /api/approvals",
        )
    if len(waits) > 1:
        listed = ", ".join(f"{event.key} ({event.facts['name']})" for event in waits)
        raise Refused(f"{run_id} waits for several: {listed}", hint="name one as `step`")
    return waits[0]
