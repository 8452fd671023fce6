"""Workflows: which there are, starting runs of them and of the code agent; usable models."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from holdfast import config
from holdfast.agents.code.records import LanguageName, TestCheck
from holdfast.agents.code.workflow import MOST_ATTEMPTS, MOST_PROMPT, evaluate_code
from holdfast.agents.settings import PROFILE, code_settings
from holdfast.durations import seconds
from holdfast.errors import UsageError
from holdfast.gateway.model_list import list_models
from holdfast.runtime.client import create_run
from holdfast.runtime.definitions import Workflow, find_workflow, registered
from holdfast.runtime.engine import Engine
from holdfast.server import views
from holdfast.server.dependencies import RoomForRuns, TheEngine, TheGateway
from holdfast.server.replies import Json
from holdfast.server.requests import Name, RequestBody, StartRun, StrictRoute
from holdfast.server.schemas import ERRORS, ModelList, Started, WorkflowList
from holdfast.store.base import Created

router = APIRouter(route_class=StrictRoute, responses=ERRORS)

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


@router.get("/api/workflows", tags=["workflows"], response_model=WorkflowList)
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
    dependencies=[RoomForRuns],
    tags=["workflows"],
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
    attributes = dict(asked.attributes)
    if asked.profile is not None:
        attributes[PROFILE] = config.check_profile(asked.profile)
    workflow = find_workflow(name[:500]).options(
        key=checked_key(key),
        attributes=attributes,
        delay=asked.delay,
        key_policy=asked.key_policy,
        timeout=asked.timeout,
        priority=asked.priority,
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


# --- the code agent: a task in plain English in, a run's id out at once ---

MOST_DOLLARS = 1_000_000
Package = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[!-~]+$")]


class Evaluate(RequestBody):
    """A task for the code agent."""

    prompt: str = Field(
        min_length=1, max_length=MOST_PROMPT, description="what the program should do"
    )
    language: LanguageName = "python"
    model: Name | None = Field(default=None, description="writes the program")
    test_model: Name | None = Field(default=None, description="writes the tests")
    attempts: int | None = Field(default=None, ge=1, le=MOST_ATTEMPTS)
    budget: Annotated[str, Field(max_length=30)] | float | None = Field(
        default=None, description="US dollars the run may spend"
    )
    packages: list[Package] = Field(
        default=[], max_length=50, description="what the program may use, installed beforehand"
    )
    check_tests: TestCheck | None = Field(
        default=None, description="whether tests that pass would refuse wrong programs"
    )
    min_score: float | None = Field(
        default=None, ge=0, le=1, description="share of wrong programs the tests must refuse"
    )
    cross_check: Name | None = Field(
        default=None, description="writes a second program, with which the first is compared"
    )

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "prompt": "Write is_palindrome, ignoring case and punctuation",
                    "language": "python",
                    "budget": "0.50",
                }
            ]
        }
    )


@router.post(
    "/api/evaluate",
    dependencies=[RoomForRuns],
    tags=["code agent"],
    status_code=202,
    response_model=Started,
    responses={200: {"model": Started, "description": "there is a run with this key already"}},
)
async def evaluate(
    engine: TheEngine, gateway: TheGateway, body: Evaluate, key: IdempotencyKey = None
) -> Response:
    """Have a program written and tested; the run's result says whether its tests pass."""
    if not body.prompt.strip():
        raise UsageError("body.prompt: the task is empty", hint="say what the program should do")
    if engine.works:  # other workers may have other models
        for model in (body.model, body.test_model, body.cross_check):
            if model is not None:
                gateway.routes.candidates(model)
    input: dict[str, Any] = {
        "prompt": body.prompt,
        "language": body.language,
        "model": body.model,
        "test_model": body.test_model,
        "max_attempts": body.attempts or code_settings().attempts,
        "budget": dollars(body.budget),
        "packages": body.packages,
        "check_tests": body.check_tests,
        "min_score": body.min_score,
        "cross_check": body.cross_check,
    }
    return await started(engine, evaluate_code.options(key=checked_key(key)), input)


def dollars(amount: str | float | None) -> str | None:
    """An amount of money, checked, as text."""
    if amount is None:
        return None
    try:
        found = Decimal(str(amount))
        if found.is_finite() and 0 <= found <= MOST_DOLLARS:
            return f"{found:f}"
    except ArithmeticError:
        pass
    raise UsageError(
        "body.budget: that is no amount of money",
        hint=f'US dollars, 0 to {MOST_DOLLARS:,}, as in "0.50"',
    )


# --- models ---


class ModelQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    all: bool = Field(default=False, description="also those that can't be used, and why")


@router.get("/api/models", tags=["models"], response_model=ModelList)
async def models(gateway: TheGateway, query: Annotated[ModelQuery, Query()]) -> Response:
    """The models usable here, as far as they are known offline."""
    found = await asyncio.to_thread(lambda: list_models(gateway, look=True))
    shown = [asdict(model) for model in found if query.all or model.why_not is None]
    return Json({"models": shown})
