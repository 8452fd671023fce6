"""The API's requests: what is asked, for its OpenAPI document.

Bodies are checked against these, unknown fields included.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Literal, NoReturn

from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import UsageError
from holdfast.records import Status

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]*$")]
RunId = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class RequestBody(BaseModel):
    """A request's body: no field that is not known, no value of another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Nothing(RequestBody):
    """An empty object."""


class StartRun(RequestBody):
    """A run to start."""

    input: dict[str, Any] = Field(default={}, description="the workflow's arguments, by name")
    attributes: dict[Name, Annotated[str, Field(max_length=1000)] | int | float | bool] = Field(
        default={}, max_length=50, description="what the run can be found by"
    )
    profile: Name | None = Field(
        default=None,
        description="whose [code] and [repo] settings the agents in this run take",
    )
    key_policy: Literal["return", "refuse", "start_new", "replace"] = Field(
        default="return",
        description="what if the run with this Idempotency-Key has ended: return it, refuse, or "
        "start a new one; replace: cancel it if it has not, and start a new one",
    )
    delay: str | float = Field(default=0.0, description='seconds, or text such as "90s" or "24h"')
    timeout: str | float | None = Field(
        default=None,
        description="how long the run may take, in place of the workflow's own limit",
    )
    priority: str | float | None = Field(
        default=None,
        description="it comes before others as if it had been started so much earlier",
    )

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"input": {"number": 21}, "attributes": {"team": "a"}}]}
    )


class ForkRun(RequestBody):
    """What a new run takes over from another, and what is replaced."""

    step: str | None = Field(
        default=None, max_length=1000, description="key of the step to go on from"
    )
    input: dict[str, Any] | None = Field(
        default=None,
        description="arguments to replace: the step's, or without a step the workflow's",
    )
    result: Any = Field(default=None, description="the step's result, instead of doing it")

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"step": "0/2", "input": {"rows": 12}}]}
    )


class Answer(RequestBody):
    """The event that a run waits for, with a yes or no in it."""

    approved: bool = True
    comment: str | None = Field(default=None, max_length=10_000)
    step: str | None = Field(
        default=None, max_length=1000, description="key of the wait, if there are several"
    )
    payload: dict[str, Any] = Field(default={}, description="more fields for the event")

    model_config = ConfigDict(json_schema_extra={"examples": [{"approved": True}]})


By = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]
Note = Annotated[str, StringConstraints(max_length=10_000)]


class Decide(RequestBody):
    """A decision on an approval."""

    approved: bool
    by: By = Field(description="who decides; goes on record")
    note: Note = ""
    arguments_hash: str | None = Field(
        default=None, max_length=64, description="of the arguments you saw: refused if others wait"
    )

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"approved": True, "by": "ann@example.com"}]}
    )


class HoldRun(RequestBody):
    """Why a run is kept, and by whom."""

    reason: Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    by: By


class DecideByToken(BaseModel):
    """The same by the approval's own token; from a form, where everything is text."""

    approved: bool
    by: By
    note: Note = ""

    model_config = ConfigDict(extra="forbid")


class SteerRuns(RequestBody):
    """What to do to all runs that fit; at least one of the filters must be given."""

    action: Literal["cancel", "terminate", "retry", "delete"]
    workflow: Name | None = None
    status: list[Status] = Field(default=[])
    attributes: dict[Name, str | int | float | bool] = Field(default={}, max_length=20)
    parent: RunId | None = Field(default=None, description="children of this run")
    created_before: float | None = Field(default=None, description="seconds since 1970, UTC")
    dry_run: bool = Field(default=False, description="only count them")

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"action": "retry", "workflow": "ship", "dry_run": True}]}
    )


class SendUpdate(RequestBody):
    """An update for a run to answer."""

    name: Name
    payload: Any = None
    id: Name | None = Field(
        default=None, description="the same id is carried out once, and gives the same answer"
    )
    wait: float = Field(
        default=30.0, ge=0, le=300, description="how long to wait for the answer, in seconds"
    )

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "add_item", "payload": {"sku": "a-1"}, "id": "click-77"}]
        }
    )


class SendEvent(RequestBody):
    """An event for the runs that wait for it, or will."""

    name: Name
    payload: Any = None
    id: Name | None = Field(default=None, description="the same id is delivered once")
    run: RunId | None = Field(default=None, description="for this run alone")

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "approval", "payload": {"what": "budget"}, "id": "approval-1"}]
        }
    )


# --- JSON of bodies: exactly what the standard allows, and not too deep ---
# Python's own reader takes NaN, overflows to infinity, keeps half characters and the last of two
# equal names. Each of these would surface later, somewhere else: here they are refused at the door.

MAX_DEPTH = 100
# A string that is never closed matches as well: looking for its end from every quote would take
# the square of the body's length.
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


class BadBody(HTTPException):
    """What FastAPI lets pass on its way out; carries our error."""

    def __init__(self, error: UsageError) -> None:
        super().__init__(error.http_status, error.message)
        self.error = error


def parse(body: bytes) -> Any:
    """A JSON value; raises UsageError for anything else."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"the body is no UTF-8: byte {error.start} can't be read") from error
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(text)
    try:
        value = json.loads(
            text,
            parse_constant=_no_constant,
            parse_float=_finite,
            object_pairs_hook=_no_repetition,
        )
        # Half of a surrogate pair (\ud800) is no character.
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(
            "the body holds half of a surrogate pair, which is no character"
        ) from error
    except ValueError as error:
        raise UsageError(f"the body is no JSON: {error}") from error
    return value


def _check_depth(text: str) -> None:
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        first = text[found.start()]
        if first in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise UsageError(f"the body is nested more than {MAX_DEPTH} deep")
        elif first in "]}":
            depth -= 1


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not part of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number


def _no_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"{twice[:50]!r} is there twice")
    return found


class StrictRequest(Request):
    """A request whose JSON is read as above."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            try:
                self._json = parse(await self.body())
            except UsageError as error:
                raise BadBody(error) from error
        return self._json


class StrictRoute(APIRoute):
    """A route whose body is read as above."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handler(StrictRequest(request.scope, request.receive))

        return strictly
