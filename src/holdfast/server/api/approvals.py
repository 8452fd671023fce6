"""Approvals: what runs ask of people, and deciding it.

A decision goes through `holdfast.loop.approval_decisions`, which binds it to the arguments that
wait. Who was sent an approval's own token decides by it, at `/hooks/{approval}/{token}`, and needs
no other.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from holdfast.errors import UsageError
from holdfast.loop.approval_decisions import decide, get_approval, list_approvals
from holdfast.records.approvals import ApprovalStatus
from holdfast.server.api.events import ANYTHING, payload_of
from holdfast.server.replies import Json
from holdfast.server.requests import Decide, DecideByToken, StrictRoute
from holdfast.server.schemas import ERRORS, ApprovalPage, ApprovalShown

router = APIRouter(tags=["approvals"], route_class=StrictRoute, responses=ERRORS)


class ApprovalsQuery(BaseModel):
    """Which approvals to list."""

    model_config = ConfigDict(extra="forbid")

    status: ApprovalStatus | Literal["any"] = "pending"
    run: str | None = Field(default=None, max_length=100, description="of this run")
    limit: int = Field(default=50, ge=1, le=1000)
    before: str | None = Field(default=None, max_length=100, description="the last one's id")


@router.get("/api/approvals", response_model=ApprovalPage)
async def approvals(query: Annotated[ApprovalsQuery, Query()]) -> Response:
    """What waits for a decision (or was decided), newest first."""
    status = None if query.status == "any" else query.status
    found = await list_approvals(
        status=status, run=query.run, limit=query.limit, before=query.before
    )
    return Json({"approvals": [each.as_json() for each in found]})


@router.get("/api/approvals/{id}", response_model=ApprovalShown)
async def approval(id: str) -> Response:
    """Exactly what would be done, and what was decided."""
    return Json((await get_approval(id[:100])).as_json())


@router.post("/api/approvals/{id}", response_model=ApprovalShown)
async def decide_approval(id: str, body: Decide) -> Response:
    """Approve or reject; it counts once, and the run goes on."""
    decided = await decide(
        id[:100],
        body.approved,
        by=body.by,
        note=body.note,
        arguments_hash=body.arguments_hash,
        how="http",
    )
    return Json(decided.as_json())


@router.post("/hooks/{approval_id}/{token}", response_model=ApprovalShown, openapi_extra=ANYTHING)
async def decide_by_token(request: Request, approval_id: str, token: str) -> Response:
    """Approve or reject with the token that was sent for this approval, from a link or a form."""
    asked = _asked(payload_of(request.headers.get("content-type", ""), await request.body()))
    decided = await decide(
        approval_id[:100],
        asked.approved,
        by=asked.by,
        note=asked.note,
        token=token,
        how="webhook",
    )
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse(request.url.path, 303)  # to the page, which says how it stands
    return Json(decided.as_json())


def _asked(payload: Any) -> DecideByToken:
    try:
        return DecideByToken.model_validate(payload)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part)[:50] for part in ("body", *first["loc"]))
        raise UsageError(f"{place}: {first['msg']}") from error
