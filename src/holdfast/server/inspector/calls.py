"""The pages on model calls: the list, and one call with what was said."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup
from starlette.requests import Request

from holdfast.errors import NotFound, UsageError
from holdfast.gateway.canonical_json import recorded_reply, recorded_request
from holdfast.gateway.messages import ReasoningPart, Tool, ToolCallPart
from holdfast.gateway.reply import Completion
from holdfast.records.calls import Call
from holdfast.server import views
from holdfast.server.inspector import story
from holdfast.server.inspector.code_html import highlight
from holdfast.server.inspector.models import SPANS
from holdfast.server.inspector.pages import Page, inspection, moment_of, whole
from holdfast.store.inspection import CallFilter, CallRow

ROWS = 50


async def calls_page(request: Request) -> Page:
    """The page at /calls."""
    query = request.query_params
    span = query.get("since") or ""
    if span and span not in SPANS:
        raise UsageError(f"{span[:50]!r} is no span of time", hint=f"one of {', '.join(SPANS)}")
    which = CallFilter(
        query.get("model") or None,
        query.get("provider") or None,
        query.get("status") or None,
        query.get("run") or None,
        time.time() - SPANS[span] if span and span != "all" else None,
    )
    limit, before = whole(request, "limit", ROWS, 1, 500), moment_of(request, "before")
    found = await inspection(request).ask(lambda view: view.call_page(which, limit, before))
    names = ("model", "provider", "status", "run", "since")
    given = {name: query[name] for name in names if query.get(name)}
    context: dict[str, Any] = {"found": found, "which": which, "given": given, "log": found.log}

    def as_json() -> dict[str, Any]:
        return {"calls": [views.call_json(row) for row in found.rows], "older": found.older}

    return Page("calls.html", "Calls", "models", context, as_json, live="/api/events")


async def call_page(request: Request) -> Page:
    """The page at /calls/ID: what was asked, what was answered, what it took."""
    id = request.path_params["call_id"]
    call, log = await inspection(request).ask(lambda view: (view.call(id), view.log_end()))
    if call is None:
        raise NotFound(f"there is no call {id[:100]}")
    row = await inspection(request).ask(lambda view: view.call_row(id))
    request_made, reply = recorded_request(call), recorded_reply(call)
    context: dict[str, Any] = {
        "call": call,
        "request_made": request_made,
        "asked": [] if request_made is None else story.asked_in(request_made),
        "reply": reply,
        "speech": [] if reply is None else story.speech_of(reply.text[: story.SAID]),
        "reasoning": "" if reply is None else _reasoning(reply),
        "tools": [] if reply is None else _tools(reply),
        "schemas": [] if request_made is None else _schemas(request_made.tools),
        "log": log,
    }
    live = None
    if call.end is None:
        run_id = call.start.run_id
        live = "/api/events" if run_id is None else f"/api/runs/{run_id}/events"
    title = f"Call {id}"
    return Page("call.html", title, "models", context, lambda: _call_json(row, call), live=live)


def _reasoning(reply: Completion) -> str:
    return "".join(part.text for part in reply.parts if isinstance(part, ReasoningPart))


def _tools(reply: Completion) -> list[story.ToolUse]:
    return [story.tool_use(part) for part in reply.parts if isinstance(part, ToolCallPart)]


def _schemas(tools: Sequence[Tool]) -> list[tuple[str, str, Markup]]:
    return [
        (tool.name, tool.description, highlight(json.dumps(tool.schema, indent=2), "json"))
        for tool in tools
    ]


def _call_json(row: CallRow, call: Call) -> dict[str, Any]:
    prompt, reply = call.start.prompt, None if call.end is None else call.end.reply
    return {
        **views.call_json(row),
        "prompt": None if prompt is None else _read(prompt),
        "reply": None if reply is None else _read(reply),
    }


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
