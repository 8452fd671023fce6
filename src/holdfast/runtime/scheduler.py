"""The scheduler: what a worker does about schedules that are due.

Every worker looks; the store sees to it that one of them makes a firing, in the transaction that
starts its run. A run has its schedule and moment as its key, so that a moment is run once even
where it is asked for twice, as by a backfill.

What a schedule is, and when it fires, is `cron`'s to say; making and steering them `schedules`'.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, UsageError
from holdfast.records.schedules import Firing, Schedule
from holdfast.runtime import definitions
from holdfast.runtime.cron import ScheduleSpec, latest, moments, parse_timing, put_off
from holdfast.runtime.definitions import Workflow
from holdfast.store.base import NewRun, Store
from holdfast.store.schedules import ScheduleChange

if TYPE_CHECKING:
    from holdfast.runtime.engine import Engine

log = logging.getLogger("holdfast")

LATE_SECONDS = 60.0
"""A firing that is later than this was missed: whether it is made up for is `catch_up`'s to say."""
AT_ONCE = 100
"""Schedules looked at, and firings made, in one go."""


class Scheduler:
    """See the module's text."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.look_at = 0.0
        """When to look next, by the steady clock."""
        self.due: float | None = None
        """When the next firing is due."""
        self.awaited: frozenset[str] = frozenset()
        """Runs whose end lets a queued firing begin."""
        self._declared: int | None = None
        """Which state of the registry of workflows the store has the schedules of."""

    async def tend(self) -> None:
        """Make the firings that are due; say when to look again."""
        engine = self._engine
        now, period = engine.clock.now(), engine.settings.sweep_seconds
        self.look_at = engine.clock.steady() + period  # also if the store fails us
        known = engine.known_workflows()
        if self._declared != definitions.registrations():
            declared = definitions.registrations()
            await declare(engine.store, known, now)
            self._declared = declared
        awaited: set[str] = set()
        again = False
        for found in await engine.store.due_schedules(list(known), now, AT_ONCE):
            schedule, more = await self._fire(found, known[found.workflow], now)
            again = again or more
            if schedule.queued and schedule.last_run is not None:
                awaited.add(schedule.last_run)
        self.awaited = frozenset(awaited)
        self.due = await engine.store.next_schedule(list(known))
        if again:
            self.look_at = 0.0
        elif self.due is not None:
            self.look_at = engine.clock.steady() + min(period, max(self.due - now, 0.0))

    async def _fire(
        self, schedule: Schedule, workflow: Workflow[..., Any], now: float
    ) -> tuple[Schedule, bool]:
        """Make a schedule's firings: what it is then, and whether there is more to do at once."""
        store = self._engine.store
        busy = await under_way(store, schedule.last_run)
        queued = await store.firings(schedule.name, 1, "queued") if schedule.queued else []
        plan = _Plan(schedule, workflow, now, busy)
        if queued and not busy:
            plan.start(queued[0].at)
        more = schedule.due_at is not None and schedule.due_at <= now and plan.fire_due()
        if not plan.firings and plan.schedule is schedule:
            return schedule, False
        written = await store.write_schedule(plan.change())
        if written is None:
            return schedule, True  # somebody else was first: look at what is left
        # One that could not be started makes way for the next in the queue.
        return written, more or (written.queued > 0 and not busy and not plan.runs)


async def under_way(store: Store, run_id: str | None) -> bool:
    """Whether a run, or the one it has gone on as, has not ended."""
    while run_id is not None:
        run = await store.get(run_id)
        if run is None:
            return False
        if run.continued_as is None:
            return not run.ended
        run_id = run.continued_as
    return False


@dataclass
class _Plan:
    """What a schedule's firings come to, before they are written."""

    schedule: Schedule
    workflow: Workflow[..., Any]
    now: float
    busy: bool
    firings: list[Firing] = field(default_factory=list[Firing])
    runs: list[NewRun] = field(default_factory=list[NewRun])
    cancel: str | None = None

    def __post_init__(self) -> None:
        self._seen = self.schedule.revision

    def fire_due(self) -> bool:
        """Fire for every moment that is due; whether there are more than fit in one go."""
        schedule, now = self.schedule, self.now
        assert schedule.next_at is not None
        timing = parse_timing(schedule.timing)
        before = schedule.next_at - 0.001
        if schedule.catch_up != "all":
            before = self._pass_over_missed(before, now - LATE_SECONDS - schedule.jitter)
        due: list[float] = []
        more = False
        last = before
        for at in moments(timing, before, now):
            if put_off(schedule.name, at, schedule.jitter) > now:
                break
            if len(due) == AT_ONCE:
                more = True
                break
            due.append(at)
            last = at
        if schedule.overlap == "cancel" and len(due) > 1:
            for at in due[:-1]:
                self._note(at, "skipped")
            due = due[-1:]
        for at in due:
            self._fire(at)
        next_at = timing.after(last)
        due_at = None if next_at is None else put_off(schedule.name, next_at, schedule.jitter)
        self.schedule = replace(self.schedule, next_at=next_at, due_at=due_at)
        return more

    def _pass_over_missed(self, before: float, late: float) -> float:
        """Go past what is too late, but for the one that may be made up for; where to go on."""
        schedule, timing = self.schedule, parse_timing(self.schedule.timing)
        last = latest(timing, before, late) if before < late else None
        if last is None or schedule.next_at is None:
            return before
        on_time = timing.after(last)
        due = on_time is not None and on_time <= self.now
        if schedule.catch_up == "one" and not due:
            previous = latest(timing, before, last - 0.001)
            if previous is not None:
                self._note(schedule.next_at, "missed", until=previous)
            self._fire(last)
        else:
            self._note(schedule.next_at, "missed", until=last)
        return last

    def _fire(self, at: float) -> None:
        overlap = self.schedule.overlap
        if overlap == "queue" and (self.busy or self.schedule.queued):
            self._note(at, "queued")
        elif overlap == "skip" and self.busy:
            self._note(at, "skipped")
        else:
            if overlap == "cancel" and self.busy:
                self.cancel = self.schedule.last_run
            self.start(at)

    def start(self, at: float) -> None:
        """Start the run of a moment."""
        schedule = self.schedule
        try:
            new = run_for(schedule, self.workflow, at, self.now)
        except Exception as error:  # noqa: BLE001 - the workflow's own code says its lane
            log.error("the schedule %s can't start a run: %s", schedule.name, error)
            self._note(at, "skipped", error=f"{type(error).__name__}: {error}")
            return
        self.runs.append(new)
        self._note(at, "started", run_id=new.id)
        self.busy = True
        self.schedule = replace(schedule, last_at=at, last_run=new.id)

    def _note(self, at: float, outcome: Any, **more: Any) -> None:
        self.firings.append(Firing(self.schedule.name, at, outcome, self.now, **more))

    def change(self) -> ScheduleChange:
        return ScheduleChange(
            self.schedule, self._seen, self.firings, self.runs, self.cancel, self.now
        )


def moment_key(schedule: str, at: float) -> str:
    """The key of the run of a moment."""
    text = datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
    return f"schedule:{schedule}:{text}"


def run_for(schedule: Schedule, workflow: Workflow[..., Any], at: float, now: float) -> NewRun:
    """The run of a moment, to be started now."""
    args, kwargs = workflow.signature.decode_arguments(schedule.input)
    attributes = {**schedule.attributes, "schedule": schedule.name}
    chosen = workflow.options(key=moment_key(schedule.name, at), attributes=attributes)
    new = chosen.new_run(schedule.input, chosen.lane(args, kwargs), now)
    new = replace(new, due_at=now, gather=None, start_rates=())  # its own pace is its schedule's
    return replace(new, meta={**new.meta, "scheduled_at": at})


# --- what is declared with workflows ---


def described(
    spec: ScheduleSpec, workflow: str, input: bytes, now: float, *, in_code: bool
) -> Schedule:
    """The schedule that a declaration asks for, with its first firing ahead."""
    name = spec.name or workflow
    next_at = spec.timing.after(now)
    return Schedule(
        name=name,
        workflow=workflow,
        timing=str(spec.timing),
        input=input,
        created_at=now,
        overlap=spec.overlap,
        catch_up=spec.catch_up,
        jitter=spec.jitter,
        attributes=dict(spec.attributes),
        in_code=in_code,
        next_at=next_at,
        due_at=None if next_at is None else put_off(name, next_at, spec.jitter),
    )


def same_terms(one: Schedule, other: Schedule) -> bool:
    """Whether two ask for the same, whatever has come of it so far."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in (
            "workflow",
            "timing",
            "input",
            "overlap",
            "catch_up",
            "jitter",
            "attributes",
            "in_code",
        )
    )


async def put(store: Store, wanted: Schedule) -> Schedule:
    """Have the store's schedule of this name be as wanted; what was is kept where it can be."""
    while True:
        [found] = await store.schedules([wanted.name]) or [None]
        if found is None:
            written = await store.write_schedule(ScheduleChange(wanted, None))
        elif same_terms(found, wanted):
            return found
        else:
            if found.in_code and not wanted.in_code:
                raise UsageError(
                    f"the schedule {wanted.name} is declared with its workflow",
                    hint="change it there, or use another name",
                )
            kept = replace(
                wanted,
                created_at=found.created_at,
                paused_at=found.paused_at,
                next_at=None if found.paused else wanted.next_at,
                due_at=None if found.paused else wanted.due_at,
                last_at=found.last_at,
                last_run=found.last_run,
                queued=found.queued,
            )
            written = await store.write_schedule(ScheduleChange(kept, found.revision))
        if written is not None:
            return written


async def declare(store: Store, workflows: Mapping[str, Workflow[..., Any]], now: float) -> None:
    """Have the store's schedules be those that are declared with these workflows."""
    wanted: dict[str, Schedule] = {}
    for workflow in workflows.values():
        for spec in workflow.schedules:
            input = workflow.signature.encode_arguments((), dict(spec.arguments))
            schedule = described(spec, workflow.name, input, now, in_code=True)
            if schedule.name in wanted:
                raise UsageError(
                    f"two schedules are named {schedule.name!r}",
                    hint='give one another name: cron("…", name="…")',
                )
            wanted[schedule.name] = schedule
    for schedule in wanted.values():
        try:
            await put(store, schedule)
        except HoldfastError as error:
            log.error("the schedule %s is left as it was: %s", schedule.name, error)
    for found in await store.schedules():
        if found.in_code and found.workflow in workflows and found.name not in wanted:
            await store.delete_schedule(found.name)
