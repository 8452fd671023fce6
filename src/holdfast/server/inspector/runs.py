"""The list of runs: live, searched, filtered, a page at a time."""

from __future__ import annotations

import json
import time
from typing import Any, cast, get_args

from starlette.datastructures import QueryParams
from starlette.requests import Request

from holdfast.agents.run_words import about
from holdfast.errors import UsageError
from holdfast.records import Run, Status
from holdfast.server import views
from holdfast.server.inspector.pages import Page, inspection, whole
from holdfast.store.inspection import COUNTED, RunPage, RunQuery, RunRow

ROWS = 50
SPANS = {"1h": 3600.0, "24h": 86400.0, "7d": 604800.0, "30d": 2592000.0}
GROUPS: dict[str, tuple[Status, ...]] = {
    "active": ("queued", "pending", "running", "waiting", "paused"),
    "failed": ("failed",),
    "stuck": ("stuck",),
    "completed": ("completed",),
    "cancelled": ("cancelled",),
}
"""What the filter by status offers; any other status can be named in the address."""


async def list_page(request: Request) -> Page:
    """The page at /runs."""
    query = request.query_params
    which = which_of(query, time.time())
    limit = whole(request, "limit", ROWS, 1, 500)
    below, above = query.get("before") or None, query.get("after") or None
    found = await inspection(request).ask(lambda view: view.run_page(which, limit, below, above))
    given = given_of(query)
    context: dict[str, Any] = {
        "found": found,
        "which": which,
        "given": given,
        "groups": _groups(found, which),
        "workflows": _workflows(found),
        "spans": SPANS,
        "counted": COUNTED,
        "summary": about,
        "status_of": status_of,
        "filtered": bool(given),
        "log": found.log,
    }
    return Page(
        "runs.html",
        "Runs",
        "runs",
        context,
        lambda: _as_json(found),
        live="/api/events",
        touch=("calls", "approvals"),
    )


def which_of(query: QueryParams, now: float) -> RunQuery:
    """The filter that an address stands for."""
    span = query.get("since") or ""
    if span and span not in SPANS:
        raise UsageError(f"{span[:50]!r} is no span of time", hint=f"one of {', '.join(SPANS)}")
    status: list[Status] = []
    for each in query.getlist("status"):
        if each in GROUPS:
            status += GROUPS[each]
        elif each in get_args(Status):
            status.append(cast("Status", each))
        elif each:
            raise UsageError(
                f"{each[:50]!r} is no status", hint=f"one of {', '.join(get_args(Status))}"
            )
    return RunQuery(
        workflow=query.get("workflow") or None,
        status=tuple(dict.fromkeys(status)),
        attributes=tuple(_attribute(text) for text in query.getlist("attribute") if text),
        since=now - SPANS[span] if span else None,
        search=(query.get("q") or "").strip()[:200],
        parent=query.get("parent") or None,
        top_level=query.get("children") == "hidden",
    )


def given_of(query: QueryParams) -> dict[str, Any]:
    """The part of an address that says which runs, for links that keep it."""
    given: dict[str, Any] = {
        name: query[name]
        for name in ("q", "workflow", "since", "parent", "children")
        if query.get(name)
    }
    for name in ("status", "attribute"):
        values = [value for value in query.getlist(name) if value]
        if values:
            given[name] = values
    return given


def _attribute(text: str) -> tuple[str, str]:
    """`region=eu` or `attempt=3`: what reads as a number or boolean is one, else it is text."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise UsageError(f"{text[:100]!r} is no attribute", hint="write it as NAME=VALUE")
    try:
        parsed: Any = json.loads(value)
    except (ValueError, RecursionError):
        parsed = value
    if not isinstance(parsed, str | int | float | bool):
        parsed = value
    return name.strip(), json.dumps(parsed, ensure_ascii=False)


def status_of(run: Run) -> str:
    """A run's status in words; one that gave a verdict ends with that."""
    passed = run.attributes.get("passed")
    if run.status == "completed" and isinstance(passed, bool):
        return "passed" if passed else "not passed"
    return run.status


def _groups(found: RunPage, which: RunQuery) -> list[tuple[str, int]]:
    """How many runs there are by group of status: of the chosen workflow, or of all."""
    chosen = found.counts.get(which.workflow, {}) if which.workflow else {}
    if which.workflow is None:
        for by_status in found.counts.values():
            for status, number in by_status.items():
                chosen[status] = chosen.get(status, 0) + number
    return [
        (name, sum(chosen.get(status, 0) for status in statuses))
        for name, statuses in GROUPS.items()
    ]


def _workflows(found: RunPage) -> list[tuple[str, int]]:
    sums = [(name, sum(counts.values())) for name, counts in found.counts.items()]
    return sorted(sums)


def _as_json(found: RunPage) -> dict[str, Any]:
    return {
        "runs": [row_json(row) for row in found.rows],
        "older": found.older,
        "newer": found.newer,
        "found": found.found,
        "searched_to": found.searched_to,
        "counts": found.counts,
        "log": found.log,
    }


def row_json(row: RunRow) -> dict[str, Any]:
    """A row of the list for programs."""
    doing = row.doing
    return {
        **views.run_json(row.run),
        "summary": about(row.run.attributes, row.input),
        "doing": None
        if doing is None
        else {"name": doing.name, "since": doing.since, "attempt": doing.attempt},
        "tokens": row.totals.tokens,
        "cost_usd": views.dollars(row.totals.cost),
        "calls": row.totals.calls,
    }
