"""`POST /api/evaluate`: the code agent. A task in plain English in, a run's id out at once."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import ConfigDict, Field, StringConstraints
from starlette.responses import Response

from holdfast.agents.code.records import LanguageName
from holdfast.agents.code.workflow import MOST_ATTEMPTS, MOST_PROMPT, evaluate_code
from holdfast.agents.settings import code_settings
from holdfast.errors import UsageError
from holdfast.server.api.workflows import IdempotencyKey, checked_key, started
from holdfast.server.dependencies import TheEngine, TheGateway
from holdfast.server.requests import Name, RequestBody
from holdfast.server.schemas import ERRORS, Started
from holdfast.server.strict_json import StrictRoute

router = APIRouter(tags=["code agent"], route_class=StrictRoute, responses=ERRORS)

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
        for model in (body.model, body.test_model):
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
