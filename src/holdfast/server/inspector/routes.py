"""Where each page is. Pages answer at their path and, as JSON, at the path with `.json`."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import NotFound
from holdfast.server.inspector import (
    actions,
    approvals,
    calls,
    compare,
    models,
    project_picture,
    run,
    runs,
    sandboxes,
    schedules,
    transcript,
    workers,
)
from holdfast.server.inspector.pages import PageRoute, add_action, add_page, static_files

KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/favicon.ico")
async def favicon() -> Response:
    """For answers that are no pages, and name no icon."""
    return Response(static_files()["icon.svg"][0], media_type=KINDS["svg"])


@router.get("/static/{name}")
async def static(request: Request) -> Response:
    """A file of ours. Its address changes with it, so it may be kept for good."""
    name = request.path_params["name"]
    if name not in static_files():
        raise NotFound(f"there is no file {name[:100]!r}")
    data, _digest = static_files()[name]
    kind = KINDS[name.rpartition(".")[2]]
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(data, media_type=f"{kind}; charset=utf-8", headers=headers)


add_action(router, "/runs/cancel", actions.ask_bulk, actions.do_bulk)
add_page(router, "/runs", runs.list_page)
add_action(router, "/runs/start", actions.ask_start, actions.do_start)
add_action(router, "/runs/{run_id}/rerun", actions.ask_rerun, actions.do_fork)
add_action(router, "/runs/{run_id}/fork", actions.ask_fork, actions.do_fork)
add_action(router, "/runs/{run_id}/send", actions.ask_send, actions.do_send)
add_action(router, "/runs/{run_id}/do/{action}", actions.ask_plain, actions.do_plain)
add_page(router, "/runs/{run_id}/transcript", transcript.transcript_page)
add_page(router, "/runs/{run_id}/events", run.events_page)
add_page(router, "/runs/{run_id}/json", run.json_page)
router.add_api_route("/runs/{run_id}/events/{seq}/value", run.payload, response_model=None)
router.add_api_route("/runs/{run_id}/frozen.json", run.frozen_file, response_model=None)
router.add_api_route("/runs/{run_id}/patch", run.patch_file, response_model=None)
add_page(router, "/runs/{run_id}/compare/{other}", compare.compare_page)
add_page(router, "/runs/{run_id}", run.timeline_page)
add_page(router, "/models", models.models_page)
add_page(router, "/calls", calls.calls_page)
add_page(router, "/calls/{call_id}", calls.call_page)
add_page(router, "/sandboxes", sandboxes.list_page)
add_action(router, "/sandboxes/{sandbox_id}/stop", sandboxes.ask_stop, sandboxes.do_stop)
add_page(router, "/sandboxes/{sandbox_id}", sandboxes.sandbox_page)
add_page(router, "/approvals", approvals.list_page)
add_action(router, "/approvals/{approval_id}", approvals.ask_decision, approvals.do_decision)
router.add_api_route("/hooks/{approval_id}/{token}", approvals.link_page, response_model=None)
add_page(router, "/schedules", schedules.schedules_page)
add_action(router, "/schedules/{name}/do/{action}", schedules.ask_action, schedules.do_action)
add_page(router, "/workers", workers.workers_page)
add_page(router, "/blueprint", project_picture.picture_page)
