"""`holdfast schedules`: list, show, create, pause, resume, trigger, backfill, delete."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from holdfast.cli import output
from holdfast.cli.options import add_common, parse_object
from holdfast.cli.store import visit
from holdfast.errors import UsageError
from holdfast.records.schedules import CATCH_UPS, OVERLAPS, Firing, Schedule
from holdfast.runtime.cron import Cron, ScheduleSpec, parse_timing, zone_of
from holdfast.runtime.engine import Engine
from holdfast.runtime.schedules import ScheduleHandle, get_schedule, next_firings, put_schedule

SHOWN_NEXT = 5


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, summary: str, handler: Callable[..., int]) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=summary, description=f"{summary.capitalize()}.")
        if name not in ("list", "create"):
            made.add_argument("name", metavar="NAME", help="the schedule's name")
        add_common(made, handler)
        return made

    verb("list", "the schedules, and when each fires next", _list)
    showing = verb("show", "a schedule, its next firings and what became of the last", _show)
    showing.add_argument("--next", type=int, default=SHOWN_NEXT, metavar="N", help="how many (5)")
    _declare_create(verb("create", "make a schedule, or change the one of that name", _create))
    verb("pause", "make no firings until it is resumed", _pause)
    verb("resume", "go on from now; what fell into the pause is not made up for", _resume)
    triggering = verb("trigger", "fire now, besides its times", _trigger)
    filling = verb(
        "backfill", "run for the moments of a stretch of time that have no run", _backfill
    )
    filling.add_argument("--from", dest="start", required=True, metavar="TIME", help="ISO 8601")
    filling.add_argument("--to", dest="end", required=True, metavar="TIME", help="not included")
    for each in (triggering, filling):
        each.add_argument(
            "--module",
            action="append",
            default=[],
            metavar="FILE.py|MODULE",
            help="what defines its workflow; may be repeated",
        )
    verb("delete", "remove a schedule; its runs go on", _delete)


def _declare_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workflow", metavar="WORKFLOW", help="the name of the workflow to start")
    parser.add_argument(
        "when", metavar="WHEN", help="'0 7 * * MON-FRI', or 'every 15m'; quoted, as one argument"
    )
    parser.add_argument("--name", help="the schedule's name (the workflow's)")
    parser.add_argument("--tz", default="UTC", metavar="ZONE", help="as Europe/Berlin (UTC)")
    parser.add_argument("--input", default="{}", metavar="JSON", help="the workflow's arguments")
    parser.add_argument(
        "--overlap", choices=OVERLAPS, default="skip", help="skip, queue, cancel or allow (skip)"
    )
    parser.add_argument(
        "--catch-up", choices=CATCH_UPS, default="one", help="skip, one or all (one)"
    )
    parser.add_argument("--jitter", default="0s", metavar="DURATION", help="put off by up to (0s)")


def as_json(schedule: Schedule, now: float, count: int = SHOWN_NEXT) -> dict[str, Any]:
    """A schedule as the API shows it."""
    return schedule.as_json() | {"next": next_firings(schedule, now, count)}


def local(at: float, schedule: Schedule) -> str:
    """A moment by the schedule's own clock."""
    timing = parse_timing(schedule.timing)
    zone = zone_of(timing.tz if isinstance(timing, Cron) else "UTC")
    return datetime.fromtimestamp(at, zone).strftime("%a %Y-%m-%d %H:%M:%S %Z")


def _list(options: argparse.Namespace) -> int:
    async def look() -> list[Schedule]:
        async with visit(options) as engine:
            return await engine.store.schedules()

    found, now = asyncio.run(look()), time.time()
    if options.json:
        output.show_json({"schedules": [as_json(each, now) for each in found]})
        return 0
    rows = [
        [
            output.short(each.name, 40),
            output.short(each.workflow, 30),
            each.timing,
            "paused" if each.paused else local(each.next_at, each) if each.next_at else "never",
            each.last_run or "",
            str(each.queued or ""),
        ]
        for each in found
    ]
    output.table(["SCHEDULE", "WORKFLOW", "WHEN", "NEXT", "LAST RUN", "QUEUED"], rows)
    return 0


def _show(options: argparse.Namespace) -> int:
    async def look() -> tuple[Schedule, list[Firing]]:
        async with visit(options):
            handle = await get_schedule(options.name)
            return await handle.record(), await handle.firings()

    (found, firings), now = asyncio.run(look()), time.time()
    if options.json:
        shown = as_json(found, now, options.next)
        output.show_json({**shown, "firings": [each.as_json() for each in firings]})
        return 0
    lines = [
        ("schedule", found.name),
        ("workflow", found.workflow),
        ("when", found.timing),
        ("input", found.input.decode()),
        ("overlap", found.overlap),
        ("catch up", found.catch_up),
        ("jitter", output.duration(found.jitter) if found.jitter else ""),
        ("declared", "with its workflow" if found.in_code else ""),
        ("paused", output.moment(found.paused_at) if found.paused_at else ""),
        ("last run", found.last_run or ""),
        ("queued", str(found.queued or "")),
    ]
    for name, value in lines:
        if value:
            print(f"{name:9} {output.plain(value)}")
    for at in next_firings(found, now, options.next):
        print(f"next      {local(at, found)}")
    for each in firings:
        note = each.run_id or each.error or (f"to {local(each.until, found)}" if each.until else "")
        print(f"{each.outcome:9} {local(each.at, found)}  {output.plain(note)}")
    return 0


def _create(options: argparse.Namespace) -> int:
    from holdfast.durations import seconds

    text = options.when.strip()
    timing = parse_timing(text if text.startswith("every ") else f"{text} {options.tz}")
    spec = ScheduleSpec(
        timing, options.name, options.overlap, options.catch_up, seconds(options.jitter)
    )
    input = json.dumps(parse_object(options.input, "--input"), ensure_ascii=False).encode()

    async def make() -> Schedule:
        async with visit(options) as engine:
            return await put_schedule(engine, options.workflow, spec, input)

    found = asyncio.run(make())
    if options.json:
        output.show_json(as_json(found, time.time()))
    else:
        when = local(found.next_at, found) if found.next_at else "never"
        output.note(f"{output.plain(found.name)} fires next {when}")
    return 0


def _steer(
    options: argparse.Namespace, do: Callable[[Engine, ScheduleHandle], Awaitable[Any]], said: str
) -> int:
    async def steer() -> Any:
        async with visit(options) as engine:
            return await do(engine, await get_schedule(options.name))

    done: dict[str, Any] = asyncio.run(steer()) or {}
    if options.json:
        output.show_json({"schedule": options.name, **done})
    else:
        output.note(f"{output.plain(options.name)}: {said.format(**done)}")
    return 0


def _pause(options: argparse.Namespace) -> int:
    return _steer(options, lambda _engine, handle: handle.pause(), "paused")


def _resume(options: argparse.Namespace) -> int:
    return _steer(options, lambda _engine, handle: handle.resume(), "resumed")


def _delete(options: argparse.Namespace) -> int:
    return _steer(options, lambda _engine, handle: handle.delete(), "deleted")


def _load(options: argparse.Namespace) -> None:
    from holdfast.cli.workflow_files import load, load_agents

    load_agents()
    for named in options.module:
        load(named)


def _trigger(options: argparse.Namespace) -> int:
    _load(options)

    async def trigger(_engine: Engine, handle: ScheduleHandle) -> dict[str, Any]:
        return {"run": await handle.trigger()}

    return _steer(options, trigger, "started {run}")


def _backfill(options: argparse.Namespace) -> int:
    _load(options)
    start, end = _moment(options.start, "--from"), _moment(options.end, "--to")

    async def backfill(_engine: Engine, handle: ScheduleHandle) -> dict[str, Any]:
        return (await handle.backfill(start, end))._asdict()

    said = "{started} started, {queued} queued, {existed} were there already"
    return _steer(options, backfill, said)


def _moment(text: str, what: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{what} is no time: {text}", hint="as 2026-01-31T07:00Z") from error
    return found if found.tzinfo is not None else found.astimezone()
