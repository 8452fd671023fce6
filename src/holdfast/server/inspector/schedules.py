"""The page on schedules: what starts runs by the clock, when next, and what became of the last."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import NotFound
from holdfast.records.schedules import Schedule
from holdfast.runtime.cron import Cron, parse_timing, zone_of
from holdfast.runtime.engine import Engine
from holdfast.runtime.schedules import get_schedule, next_firings
from holdfast.server.inspector.pages import Page, seen

SHOWN_NEXT = 3
SHOWN_FIRINGS = 8
ACTIONS = {
    "trigger": ("Fire this schedule now?", "A run is started at once, besides its times.", "Fire"),
    "pause": (
        "Pause this schedule?",
        "It makes no firings until it is resumed. Runs it has started go on.",
        "Pause",
    ),
    "resume": (
        "Resume this schedule?",
        "It goes on from now. What fell into the pause is not made up for.",
        "Resume",
    ),
}


def _local(at: float, schedule: Schedule) -> str:
    timing = parse_timing(schedule.timing)
    zone = zone_of(timing.tz if isinstance(timing, Cron) else "UTC")
    return datetime.fromtimestamp(at, zone).strftime("%a %Y-%m-%d %H:%M:%S %Z")


async def schedules_page(request: Request) -> Page:
    """The page at /schedules."""
    engine, now = cast("Engine", request.app.state.engine), time.time()
    found = await engine.store.schedules()
    rows = [
        (
            each,
            [(at, _local(at, each)) for at in next_firings(each, now, SHOWN_NEXT)],
            [
                (firing, _local(firing.at, each))
                for firing in await engine.store.firings(each.name, SHOWN_FIRINGS)
            ],
        )
        for each in found
    ]
    log = await engine.store.log_end()
    listening = await engine.store.subscriptions()
    context: dict[str, Any] = {"rows": rows, "listening": listening, "log": log}

    def as_json() -> dict[str, Any]:
        return {
            "schedules": [
                {
                    **each.as_json(),
                    "next": [at for at, _text in ahead],
                    "firings": [firing.as_json() for firing, _text in firings],
                }
                for each, ahead, firings in rows
            ],
            "subscriptions": [each.as_json() for each in listening],
        }

    return Page(
        "schedules.html", "Schedules", "schedules", context, as_json, live="/api/events", every=30
    )


async def ask_action(request: Request) -> Page:
    """The page that asks whether to trigger, pause or resume."""
    name, action = request.path_params["name"], request.path_params["action"]
    if action not in ACTIONS:
        raise NotFound(f"there is no action {action[:50]!r}")
    schedule = await (await get_schedule(name[:200])).record()
    title, says, button = ACTIONS[action]
    context: dict[str, Any] = {
        "schedule": schedule,
        "action": action,
        "says": says,
        "button": button,
        "log": 0,
    }
    return Page("schedule_action.html", title, "schedules", context, lambda: {"action": action})


async def do_action(request: Request) -> Response:
    """Trigger, pause or resume."""
    name, action = request.path_params["name"], request.path_params["action"]
    if action not in ACTIONS:
        raise NotFound(f"there is no action {action[:50]!r}")
    handle = await get_schedule(name[:200])
    if action == "trigger":
        run = await handle.trigger()
        return seen("/schedules" if run is None else f"/runs/{run}")
    await (handle.pause() if action == "pause" else handle.resume())
    return seen("/schedules")
