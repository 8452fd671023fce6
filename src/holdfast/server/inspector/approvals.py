"""Approvals: what runs wait for somebody to agree to, and deciding it."""

from __future__ import annotations

import getpass
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from holdfast.agents.run_words import about
from holdfast.errors import NotFound
from holdfast.loop.approval_decisions import approval_by_token, decide
from holdfast.records import Run
from holdfast.records.approvals import Approval
from holdfast.server.inspector.pages import Page, inspection, mask, render, seen
from holdfast.server.inspector.payloads import Field, Mask, fields_of, masked_value
from holdfast.server.settings import ServerSettings
from holdfast.store.inspection import CallRow, View

SHOWN = 100


async def list_page(request: Request) -> Page:
    """The page at /approvals: what waits for a decision, and what was decided last."""
    now, masked = time.time(), mask(request)

    def ask(
        view: View,
    ) -> tuple[list[Approval], list[Approval], dict[str, Asker | None], int]:
        waiting = view.approvals("pending", None, SHOWN, None, now)
        latest = view.approvals(None, None, SHOWN, None, now)
        decided = [each for each in latest if each.status != "pending"]
        about = {id: asker_of(view, id, masked) for id in {each.run_id for each in waiting}}
        return waiting, decided, about, view.log_end()

    waiting, decided, about, log = await inspection(request).ask(ask)
    context: dict[str, Any] = {
        "waiting": [(each, shown(each, masked)) for each in waiting],
        "decided": decided,
        "about": about,
        "log": log,
    }

    def as_json() -> dict[str, Any]:
        return {
            "waiting": [each.as_json() for each in waiting],
            "decided": [each.as_json() for each in decided],
        }

    return Page("approvals.html", "Approvals", "approvals", context, as_json, live="/api/events")


@dataclass(frozen=True)
class Asker:
    """Who asks for a decision: the run and its model, and the words that it is about."""

    workflow: str
    model: str
    words: str

    @classmethod
    def of(cls, run: Run, given: bytes, calls: Sequence[CallRow], masked: Mask) -> Asker:
        """`calls`: its latest model call, if it made any."""
        words = masked(about(run.attributes, given, 400))
        return cls(run.workflow, calls[-1].model if calls else "", words)


def asker_of(view: View, run_id: str, masked: Mask) -> Asker | None:
    """Who asks in a run."""
    run = view.run(run_id)
    if run is None:
        return None
    return Asker.of(run, view.run_input(run_id), view.calls_of_run(run_id)[-1:], masked)


def shown(approval: Approval, masked: Mask) -> list[Field]:
    """Exactly what would be done."""
    return fields_of(masked_value(approval.arguments, masked))


async def _existing(request: Request) -> Approval:
    id, now = request.path_params["approval_id"], time.time()
    found = await inspection(request).ask(lambda view: view.approval(id, now))
    if found is None:
        raise NotFound(f"there is no approval {id[:100]}")
    return found


async def ask_decision(request: Request) -> Page:
    """The page that asks for the decision, with the arguments it is about."""
    found = await _existing(request)
    settings = cast("ServerSettings", request.app.state.settings)
    context: dict[str, Any] = {
        "approval": found,
        "fields": shown(found, mask(request)),
        # On one's own machine it is hardly anybody else.
        "by": _user() if settings.is_private else "",
        "asker": await inspection(request).ask(
            lambda view: asker_of(view, found.run_id, mask(request))
        ),
        "leaning": request.query_params.get("as") or "",
        "log": 0,
    }
    return Page("decide.html", found.title, "approvals", context, found.as_json)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""  # a process without a user of its own, as in some containers


async def link_page(request: Request) -> Response:
    """What is asked, for whoever was sent the link: they decide with it, and need no login."""
    id, token = request.path_params["approval_id"], request.path_params["token"]
    found = await approval_by_token(id[:100], token)
    context = {"approval": found, "fields": shown(found, mask(request)), "log": 0}
    page = Page("decide_by_link.html", found.title, "", context, found.as_json)
    return render(request, page)


async def do_decision(request: Request) -> Response:
    """Approve or reject; refused if something else waits by now than was shown."""
    found, form = await _existing(request), await request.form()
    text = {name: value for name, value in form.items() if isinstance(value, str)}
    await decide(
        found.id,
        text.get("decision") == "approve",
        by=text.get("by", ""),
        note=text.get("note", ""),
        arguments_hash=text.get("hash", ""),
        how="http",
    )
    return seen(f"/runs/{found.run_id}")
