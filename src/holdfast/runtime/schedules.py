"""Making, finding and steering schedules: the functions and the handle that users hold.

Firing them is the scheduler's business, in whatever worker knows the workflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple, ParamSpec, TypeVar

from holdfast.errors import NotFound, NotInWorkflow, Refused, UsageError
from holdfast.records.schedules import Firing, Schedule
from holdfast.runtime import scheduler
from holdfast.runtime.app import current_engine
from holdfast.runtime.context import execution
from holdfast.runtime.cron import ScheduleSpec, moments, parse_timing, put_off
from holdfast.runtime.definitions import Workflow, find_workflow
from holdfast.runtime.engine import Engine
from holdfast.store.schedules import ScheduleChange

P = ParamSpec("P")
R = TypeVar("R")

MOST_BACKFILLED = 10_000
FAR = 50 * 366 * 86400.0


class Backfill(NamedTuple):
    """What a backfill has come to."""

    started: int
    """Runs that were started at once."""
    queued: int
    """Runs that begin one after the other."""
    existed: int
    """Moments whose run was there already."""


class ScheduleHandle:
    """A schedule, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<schedule {self.name}>"

    async def record(self) -> Schedule:
        """The schedule as it is now."""
        return await _existing(await _engine(), self.name)

    async def next_firings(self, count: int = 5) -> list[float]:
        """The next moments it fires for, as seconds since 1970, without jitter."""
        return next_firings(await self.record(), (await _engine()).clock.now(), count)

    async def firings(self, limit: int = 20) -> list[Firing]:
        """What became of the latest moments, newest first."""
        engine = await _engine()
        await _existing(engine, self.name)
        return await engine.store.firings(self.name, limit)

    async def pause(self) -> None:
        """Make no firings until it is resumed; runs that were started go on."""
        engine = await _engine()
        now = engine.clock.now()
        await _change(
            engine,
            self.name,
            lambda found: (
                None
                if found.paused
                else ScheduleChange(
                    replace(found, paused_at=now, next_at=None, due_at=None), found.revision
                )
            ),
        )

    async def resume(self) -> None:
        """Go on from now; what fell into the pause is not made up for."""
        engine = await _engine()
        now = engine.clock.now()

        def change(found: Schedule) -> ScheduleChange | None:
            if not found.paused:
                return None
            next_at = parse_timing(found.timing).after(now)
            due_at = None if next_at is None else put_off(found.name, next_at, found.jitter)
            resumed = replace(found, paused_at=None, next_at=next_at, due_at=due_at)
            return ScheduleChange(resumed, found.revision)

        await _change(engine, self.name, change)

    async def trigger(self) -> str | None:
        """Fire now, besides its times; the run's id, or None if it waits for the one before.

        Also while it is paused. Raises Refused if the run before is under way and `overlap` is
        "skip".
        """
        engine = await _engine()
        while True:
            found = await _existing(engine, self.name)
            now = engine.clock.now()
            at = now if found.last_at is None else max(now, found.last_at + 0.001)
            busy = await scheduler.under_way(engine.store, found.last_run)
            if busy and found.overlap == "skip":
                raise Refused(
                    f"{found.last_run} of {self.name} is under way, and it has no second beside it",
                    hint="wait for it or cancel it; overlap='queue' would put this one behind it",
                )
            if busy and found.overlap == "queue":
                waits = Firing(self.name, at, "queued", now)
                change = ScheduleChange(found, found.revision, [waits], at=now)
            else:
                new = scheduler.run_for(found, find_workflow(found.workflow), at, now)
                started = Firing(self.name, at, "started", now, new.id)
                change = ScheduleChange(
                    replace(found, last_at=at, last_run=new.id),
                    found.revision,
                    [started],
                    [new],
                    found.last_run if busy and found.overlap == "cancel" else None,
                    now,
                )
            if await engine.store.write_schedule(change) is not None:
                engine.look_at_schedules()
                return change.runs[0].id if change.runs else None

    async def backfill(self, start: datetime, end: datetime) -> Backfill:
        """Run for every moment from `start` up to, not including, `end`.

        A moment that has a run already is left out. With `overlap` "allow" they begin at once,
        otherwise one after the other.
        """
        if start.tzinfo is None or end.tzinfo is None:
            raise UsageError("a backfill is from one moment to another", hint="aware datetimes")
        engine = await _engine()
        found = await _existing(engine, self.name)
        timing = parse_timing(found.timing)
        stretch = moments(timing, start.timestamp() - 0.001, end.timestamp() - 0.001)
        wanted = list(islice(stretch, MOST_BACKFILLED + 1))
        if len(wanted) > MOST_BACKFILLED:
            raise Refused(
                f"that is more than {MOST_BACKFILLED:,} firings", hint="backfill a part of it"
            )
        if wanted and wanted[-1] > engine.clock.now():
            raise Refused("a backfill is for what has passed", hint="end it now, or earlier")
        done = Backfill(0, 0, 0)
        for first in range(0, len(wanted), scheduler.AT_ONCE):
            part = await self._backfill(engine, wanted[first : first + scheduler.AT_ONCE])
            done = Backfill(*(a + b for a, b in zip(done, part, strict=True)))
        engine.look_at_schedules()
        return done

    async def _backfill(self, engine: Engine, wanted: list[float]) -> Backfill:
        while True:
            found, now = await _existing(engine, self.name), engine.clock.now()
            keys = {at: scheduler.moment_key(self.name, at) for at in wanted}
            there = await engine.store.used_keys(found.workflow, list(keys.values()))
            fresh = [at for at in wanted if keys[at] not in there]
            existed = len(wanted) - len(fresh)
            if found.overlap == "allow":
                workflow = find_workflow(found.workflow)
                runs = [scheduler.run_for(found, workflow, at, now) for at in fresh]
                noted = [
                    Firing(self.name, at, "started", now, new.id)
                    for at, new in zip(fresh, runs, strict=True)
                ]
                done = Backfill(len(runs), 0, existed)
                change = ScheduleChange(found, found.revision, noted, runs, at=now)
            else:
                noted = [Firing(self.name, at, "queued", now) for at in fresh]
                done = Backfill(0, len(fresh), existed)
                change = ScheduleChange(found, found.revision, noted, at=now)
            if await engine.store.write_schedule(change) is not None:
                return done

    async def delete(self) -> None:
        """Remove the schedule; the runs it has started go on."""
        engine = await _engine()
        found = await _existing(engine, self.name)
        if found.in_code:
            raise Refused(
                f"the schedule {self.name} is declared with its workflow",
                hint="take it out there, or pause it",
            )
        await engine.store.delete_schedule(self.name)


async def create_schedule(
    workflow: Workflow[P, R], when: ScheduleSpec, /, *args: P.args, **kwargs: P.kwargs
) -> ScheduleHandle:
    """Have runs of a workflow started with these arguments, when `cron(…)` or `every(…)` says.

    A schedule of the same name is changed to this one; one that says the same already is left
    alone, so that it can be asked for at every start of a program.

    >>> await create_schedule(report, cron("0 7 * * *", tz="Asia/Tokyo", name="tokyo"), "tokyo")
    """
    engine = await _engine()
    if when.arguments and (args or kwargs):
        raise UsageError("the arguments are given twice", hint="in the call, or in `arguments`")
    given: Mapping[str, Any] = kwargs or when.arguments
    limit = engine.settings.max_payload
    input = workflow.signature.encode_arguments(args, dict(given), limit)
    made = await put_schedule(engine, workflow.name, when, input)
    return ScheduleHandle(made.name)


async def put_schedule(engine: Engine, workflow: str, when: ScheduleSpec, input: bytes) -> Schedule:
    """Make or change a schedule of a workflow that this process may not know."""
    now = engine.clock.now()
    wanted = scheduler.described(when, workflow, input, now, in_code=False)
    check_name(wanted.name)
    written = await scheduler.put(engine.store, wanted)
    engine.look_at_schedules()
    return written


def check_name(name: str) -> None:
    """Refuse what can't be in an address or a line of text."""
    if not 0 < len(name) <= 200 or not name.isprintable() or "/" in name or name.strip() != name:
        raise UsageError(
            f"{name[:200]!r} can't be a schedule's name",
            hint="1 to 200 characters, without / and spaces around it",
        )


async def get_schedule(name: str) -> ScheduleHandle:
    """The handle of a schedule that exists."""
    await _existing(await _engine(), name)
    return ScheduleHandle(name)


async def list_schedules() -> list[Schedule]:
    """All schedules, by name."""
    return await (await _engine()).store.schedules()


def next_firings(schedule: Schedule, now: float, count: int) -> list[float]:
    """The moments a schedule fires for next; none while it is paused."""
    if schedule.next_at is None:
        return []
    timing = parse_timing(schedule.timing)
    return list(islice(moments(timing, schedule.next_at - 0.001, now + FAR), count))


async def _engine() -> Engine:
    if execution() is not None:
        raise NotInWorkflow("schedules can't be steered in a workflow body", hint="use a @step")
    return await current_engine()


async def _existing(engine: Engine, name: str) -> Schedule:
    found = await engine.store.schedules([name])
    if not found:
        raise NotFound(
            f"there is no schedule {name[:200]}", hint="holdfast schedules list shows what there is"
        )
    return found[0]


async def _change(
    engine: Engine, name: str, change: Callable[[Schedule], ScheduleChange | None]
) -> None:
    while True:
        wanted = change(await _existing(engine, name))
        if wanted is None or await engine.store.write_schedule(wanted) is not None:
            engine.look_at_schedules()
            return
