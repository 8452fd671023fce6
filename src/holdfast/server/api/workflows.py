"""Workflows: which there are, and starting runs of them."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Header
from starlette.responses import Response

from holdfast.durations import seconds
from holdfast.errors import UsageError
from holdfast.runtime.client import create_run
from holdfast.runtime.definitions import Workflow, find_workflow, registered
from holdfast.runtime.engine import Engine
from holdfast.server import views
from holdfast.server.dependencies import TheEngine
from holdfast.server.replies import Json
from holdfast.server.requests import StartRun
from holdfast.server.schemas import ERRORS, Started, WorkflowList
from holdfast.server.strict_json import StrictRoute
from holdfast.store.base import Created

router = APIRouter(tags=["workflows"], route_class=StrictRoute, responses=ERRORS)

MAX_KEY = 255
MAX_DELAY = 10 * 366 * 86400.0

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="one run per workflow and key: the same request again gives the same run, "
        "another request with the same key is refused",
    ),
]


@router.get("/api/workflows", response_model=WorkflowList)
async def list_workflows() -> Response:
    """The workflows that this server knows."""
    known = [registered()[name] for name in sorted(registered())]
    return Json({"workflows": [_shown(workflow) for workflow in known]})


def _shown(workflow: Workflow[..., Any]) -> dict[str, Any]:
    return {
        "name": workflow.name,
        "version": workflow.version,
        "description": workflow.function.__doc__,
        "input": workflow.signature.schema(),
    }


@router.post(
    "/api/workflows/{name}/runs",
    status_code=202,
    response_model=Started,
    responses={200: {"model": Started, "description": "there is a run with this key already"}},
)
async def start_run(
    engine: TheEngine, name: str, body: StartRun | None = None, key: IdempotencyKey = None
) -> Response:
    """Start a run; it goes on durably in the background."""
    asked = body or StartRun()
    if seconds(asked.delay) > MAX_DELAY:
        raise UsageError("body.delay: a run can't be put off for more than ten years")
    workflow = find_workflow(name[:500]).options(
        key=checked_key(key),
        attributes=dict(asked.attributes),
        delay=asked.delay,
        key_policy=asked.key_policy,
        timeout=asked.timeout,
    )
    return await started(engine, workflow, asked.input)


def checked_key(key: str | None) -> str | None:
    """An idempotency key as it can be stored."""
    if key is None or (0 < len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
        return key
    raise UsageError(
        "the Idempotency-Key can't be used", hint=f"1 to {MAX_KEY} printable ASCII characters"
    )


async def started(engine: Engine, workflow: Workflow[..., Any], input: dict[str, Any]) -> Response:
    """Start a run, and say where it is."""
    text = json.dumps(input, ensure_ascii=False).encode()
    created = await create_run(engine, workflow, text, same_input=True)
    return started_reply(created)


def started_reply(created: Created) -> Json:
    """202 for a run that was started now, 200 for one that was there."""
    run = created.run
    body = {
        "id": run.id,
        "workflow": run.workflow,
        "status": run.status,
        "existed": created.existed,
        "urls": views.urls(run.id),
    }
    headers = {"location": f"/api/runs/{run.id}"}
    return Json(body, 200 if created.existed else 202, headers)
