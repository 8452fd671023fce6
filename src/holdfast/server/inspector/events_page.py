"""A run as it was recorded: its events, its JSON, and any payload in whole."""

from __future__ import annotations

import json
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import NotFound
from holdfast.server.inspector.code_html import highlight
from holdfast.server.inspector.pages import Page, inspection, mask, whole
from holdfast.server.inspector.payloads import SHOWN_BYTES, Mask, Shown
from holdfast.server.inspector.run import as_json, common, page_of, shown
from holdfast.server.inspector.run_data import Loaded, existing, load
from holdfast.server.inspector.text_format import moment
from holdfast.store.inspection import View

EVENTS = 200
"""Events on one page."""


async def events_page(request: Request) -> Page:
    """The page at /runs/ID/events: the journal as it is."""
    now, masked = time.time(), mask(request)
    loaded, input = await _with_input(request, masked)
    total = len(loaded.journal)
    default = max((total - 1) // EVENTS * EVENTS, 0) if not loaded.run.ended else 0
    first = whole(request, "from", default, 0, max(total - 1, 0))
    rows = loaded.journal[first : first + EVENTS]
    context = {
        **common(loaded, now, "events", input, masked),
        "events": [(row, _facts(row.facts, masked)) for row in rows],
        "first": first,
        "total": total,
        "rows": EVENTS,
    }

    def page_json() -> dict[str, Any]:
        events = [
            {
                "seq": row.seq,
                "type": row.type,
                "key": row.key,
                "at": row.at,
                "facts": row.facts,
                "bytes": row.size,
            }
            for row in rows
        ]
        return {"events": events, "from": first, "total": total, "log": loaded.log}

    return page_of(loaded, "events.html", context, page_json)


async def _with_input(request: Request, masked: Mask) -> tuple[Loaded, Shown | None]:
    """The run that is asked for, and what it was given."""

    def ask(view: View) -> tuple[Loaded, Shown | None]:
        loaded = load(view, request.path_params["run_id"])
        return loaded, shown(view, loaded.run.id, 1, masked)

    return await inspection(request).ask(ask)


def _facts(facts: dict[str, Any], masked: Mask) -> str:
    """An event's facts on a line, without what is told elsewhere."""
    told = {name: value for name, value in facts.items() if name not in ("seed", "rebuild")}
    error: Any = told.get("error")
    if isinstance(error, dict):
        told["error"] = f"{error.get('type')}: {error.get('message')}"  # pyright: ignore[reportUnknownMemberType]
    text = "  ".join(f"{name}={_fact(name, value)}" for name, value in told.items())
    return masked(text[:400])


def _fact(name: str, value: Any) -> str:
    if isinstance(value, float) and (name.endswith("_at") or name == "deadline"):
        return moment(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# --- JSON and payloads ---


async def json_page(request: Request) -> Page:
    """The page at /runs/ID/json: what programs get, for people."""
    now, masked = time.time(), mask(request)
    loaded, input = await _with_input(request, masked)
    data = as_json(loaded, now, None)
    text = masked(json.dumps(data, indent=2, ensure_ascii=False))
    context = {
        **common(loaded, now, "json", input, masked),
        "text": highlight(text[:SHOWN_BYTES], "json"),
        "cut": max(len(text) - SHOWN_BYTES, 0),
    }
    return page_of(loaded, "json.html", context, lambda: data)


WHOLE = 1_000_000_000
"""Bytes: more than SQLite keeps in one place, and within what its substr() takes."""


async def payload(request: Request) -> Response:
    """The whole payload of one event, as text, with secrets masked."""
    run_id, masked = request.path_params["run_id"], mask(request)
    try:
        seq = int(request.path_params["seq"])
    except ValueError as error:
        raise NotFound("an event is named by its number") from error

    def ask(view: View) -> bytes:
        existing(view, run_id)
        found = view.payload(run_id, min(seq, 1 << 62), 0, WHOLE)
        if found is None:
            raise NotFound(f"{run_id} has no event {seq}")
        return masked(found.data.decode(errors="replace")).encode("utf-8", "replace")

    data = await inspection(request).ask(ask)
    name = f"{run_id}-{seq}.json"
    headers = {"content-disposition": f'inline; filename="{name}"', "cache-control": "no-store"}
    # Text, whatever is in it: a browser must not take it for a page.
    return Response(data, media_type="text/plain; charset=utf-8", headers=headers)
