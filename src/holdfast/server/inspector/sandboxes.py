"""The pages on sandboxes: live and past, one with its commands, and stopping it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import NotFound, UsageError
from holdfast.sandbox.host import Host
from holdfast.sandbox.sandbox import Sandbox
from holdfast.server.inspector.pages import Page, inspection, seen, whole
from holdfast.store import opener
from holdfast.store.inspection import SandboxDetail, SandboxRow

ROWS = 50
COMMANDS = 100
WHICH = {"": None, "live": True, "past": False}


async def list_page(request: Request) -> Page:
    """The page at /sandboxes."""
    which = request.query_params.get("which") or ""
    if which not in WHICH:
        raise UsageError(f"{which[:50]!r} is no filter of sandboxes", hint="live or past")
    limit, below = whole(request, "limit", ROWS, 1, 500), request.query_params.get("before") or None
    await _notice_the_dead(request)
    found = await inspection(request).ask(
        lambda view: view.sandbox_list(WHICH[which], limit, below)
    )
    context: dict[str, Any] = {"found": found, "which": which, "log": found.log}

    def as_json() -> dict[str, Any]:
        rows = [row_json(row) for row in found.rows]
        return {"sandboxes": rows, "older": found.older, "live": found.live}

    return Page("sandboxes.html", "Sandboxes", "sandboxes", context, as_json, live="/api/events")


async def _notice_the_dead(request: Request) -> None:
    """Have sandboxes of processes that were killed put down as ended."""
    records = opener.sandbox_records(inspection(request).name)
    try:
        await records.list(limit=1)
    finally:
        await records.close()


async def sandbox_page(request: Request) -> Page:
    """The page at /sandboxes/ID."""
    found = await _found(request)
    row = found.row
    record = row.record
    stopped = time.time() if record.stopped_at is None else record.stopped_at.timestamp()
    context: dict[str, Any] = {
        "found": found,
        "record": record,
        "seconds": stopped - record.created_at.timestamp(),
        "busy": sum(command.seconds or 0.0 for command in found.commands),
        "log": found.log,
    }
    live = "/api/events" if record.live else None

    def as_json() -> dict[str, Any]:
        return {
            **row_json(row),
            "commands_list": [command.as_json() for command in found.commands],
            "egress": [attempt.as_json() for attempt in found.egress],
        }

    return Page("sandbox.html", f"Sandbox {record.id}", "sandboxes", context, as_json, live=live)


async def _found(request: Request) -> SandboxDetail:
    id = request.path_params["sandbox_id"]
    command = request.query_params.get("command") or None
    egress = whole(request, "egress", 0, 0, 1 << 62) or None
    found = await inspection(request).ask(
        lambda view: view.sandbox_detail(id, COMMANDS, command, egress)
    )
    if found is None:
        raise NotFound(f"there is no sandbox {id[:100]}")
    return found


async def ask_stop(request: Request) -> Page:
    """The page that asks whether to stop a sandbox."""
    found = await _found(request)
    record = found.row.record
    context: dict[str, Any] = {"record": record, "log": 0}
    return Page("stop.html", "Stop this sandbox?", "sandboxes", context, lambda: {"id": record.id})


async def do_stop(request: Request) -> Response:
    """Stop a sandbox of any process of this user on this machine."""
    id = request.path_params["sandbox_id"]
    host = Host(pool=0)
    try:
        await (await Sandbox.get(id, host=host)).stop("stopped in the inspector")
    finally:
        await host.aclose()
    await _on_record(request)
    return seen(f"/sandboxes/{id}")


async def _on_record(request: Request) -> None:
    """Wait, not for long, until the store says so too: records follow a moment later."""
    for _ in range(40):
        if not (await _found(request)).row.record.live:
            return
        await asyncio.sleep(0.05)


def row_json(row: SandboxRow) -> dict[str, Any]:
    """A sandbox for programs."""
    return {
        **row.record.as_json(),
        "commands": row.commands,
        "failed": row.failed,
        "written_bytes": row.written,
        "reached": row.reached,
        "refused": row.refused,
        "cpu_seconds": row.cpu_seconds,
        "peak_memory": row.peak_memory,
    }
