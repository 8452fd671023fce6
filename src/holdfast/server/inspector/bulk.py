"""Cancelling many runs at once: those that were ticked, or all that fit the filter."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import Refused, UsageError
from holdfast.records import ENDED, Run
from holdfast.runtime.client import get_run
from holdfast.server.inspector.pages import Page, inspection, seen
from holdfast.server.inspector.runs import GROUPS, given_of, status_of, which_of
from holdfast.store.inspection import RunQuery, View

MOST = 500
"""Runs cancelled by one request."""


async def ask(request: Request) -> Page:
    """The page that shows which runs would be cancelled."""
    query = request.query_params
    runs = await inspection(request).ask(lambda view: _chosen(view, query))
    back = urlencode(given_of(query), doseq=True)
    context: dict[str, Any] = {
        "runs": runs,
        "most": MOST,
        "back": back,
        "ticked": bool(query.getlist("run")),
        "status_of": status_of,
        "log": 0,
    }
    return Page(
        "bulk.html", "Cancel runs", "runs", context, lambda: {"runs": [run.id for run in runs]}
    )


def _chosen(view: View, query: QueryParams) -> list[Run]:
    """The runs that were ticked, or that fit the filter, as far as they can be cancelled."""
    ids = [id for id in query.getlist("run") if id][:MOST]
    if not ids:
        which = which_of(query, time.time())
        if not which.status:
            which = RunQuery(
                which.workflow,
                (*GROUPS["active"], "stuck"),
                which.attributes,
                which.since,
                which.until,
                which.search,
                which.parent,
            )
        ids = view.matching_runs(which, MOST)
    runs = [view.run(id) for id in ids]
    return [run for run in runs if run is not None and run.status not in ENDED]


async def do(request: Request) -> Response:
    """Cancel the runs that were shown."""
    form = await request.form()
    ids = [id for id in form.getlist("run") if isinstance(id, str)][:MOST]
    if not ids:
        raise UsageError("no run was chosen", hint="tick some in the list of runs")
    for id in ids:
        run = await get_run(id)
        try:
            await run.cancel()
        except Refused:
            continue  # it ended by itself since the page was shown
    back = form.get("back")
    return seen(f"/runs?{back}" if isinstance(back, str) and back else "/runs")
