"""An attempt of a step, as an activity: carried out as a local worker does.

Which function that is: the process that hosts the run knows it; any other finds it where it was
defined, or, for a function that only exists within a body, by replaying the run to the step.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from temporalio import activity
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from holdfast.errors import CrashLoop, NotFound, RunError, StoreError
from holdfast.records import RUN_STARTED, ErrorInfo, Event
from holdfast.runtime import failures
from holdfast.runtime.commands import StepCall
from holdfast.runtime.definitions import Step, find_workflow
from holdfast.runtime.history import Retrying
from holdfast.runtime.replay import Execution
from holdfast.runtime.steps import StepWork
from holdfast.temporal.hosted_run import RECORD, Process
from holdfast.temporal.messages import (
    Publication,
    Recorded,
    Row,
    StepInput,
    context_from,
    from_rows,
)

if TYPE_CHECKING:
    from holdfast.runtime.engine import Engine
    from holdfast.temporal.mirror import Mirror

log = logging.getLogger("holdfast")

STOPPED = "WorkerStopped"
"""The type of the failure of an attempt whose worker was stopped, not killed."""


class Activities:
    """What this process carries out for its runs."""

    def __init__(
        self, engine: Engine, owner: str, client: Client, mirror: Mirror, process: Process
    ) -> None:
        """`owner`: who has runs in the store that are carried out on this task queue."""
        self._engine, self._owner, self._client, self._mirror = engine, owner, client, mirror
        self._process = process
        self._under_way: dict[asyncio.Task[Any], Attempt | None] = {}
        self._stopped = False

    @activity.defn(dynamic=True)
    async def step(self, args: Sequence[RawValue]) -> str:
        """An attempt of a step: its result, as JSON."""
        given: StepInput = activity.payload_converter().from_payload(args[0].payload, StepInput)
        self._mirror.accepted(given.run_id, given.fence, given.seq)
        me = asyncio.current_task()
        assert me is not None
        self._under_way[me] = None
        stops = _stops()
        beating = asyncio.create_task(self._beat(stops))
        try:
            self._check_deaths(given, stops)
            await self._check_owner(given)
            step = self._process.steps.get((given.run_id, given.key)) or await self._find(given)
            attempt = self._under_way[me] = Attempt(self._engine, self._client, given, step)
            if self._stopped:
                attempt.interrupt()
            return await attempt.outcome()
        except ApplicationError as error:
            if error.type == STOPPED:
                activity.heartbeat(stops + 1)
            raise
        finally:
            beating.cancel()
            del self._under_way[me]

    async def finish(self, grace: float) -> None:
        """Let the steps under way finish for so long; what has not is begun again elsewhere."""
        if self._under_way and grace > 0:
            await asyncio.wait(set(self._under_way), timeout=grace)
        self._stopped = True
        for attempt in list(self._under_way.values()):
            if attempt is not None:
                attempt.interrupt()

    @activity.defn(name=RECORD)
    async def record(self, told: Recorded) -> None:
        """Have the store know a run's journal up to a place."""
        await self._mirror.record(told)

    async def _beat(self, stops: int) -> None:
        """Tell Temporal that this worker is alive, and hear whether the step is cancelled."""
        pause = min(self._process.temporal.heartbeat_seconds / 3, 2.0)
        while True:
            activity.heartbeat(stops)
            await asyncio.sleep(pause)

    def _check_deaths(self, given: StepInput, stops: int) -> None:
        """Temporal begins an attempt again for as long as workers die with it; we do not."""
        limit = self._engine.settings.crash_limit
        if activity.info().attempt - 1 - stops >= limit:
            error = CrashLoop(
                f"{limit} workers in a row died while they had {given.step} in hand",
                hint="find out what kills them (memory? a native crash?), then retry the run",
            )
            raise _failure(failures.describe(error), None)

    async def _check_owner(self, given: StepInput) -> None:
        """Nothing is begun for a run that has ended, or is no longer here, by the store."""
        while True:
            try:
                run = await self._engine.store.get(given.run_id)
                break
            except StoreError as error:
                if self._stopped:
                    raise
                log.error("%s waits for the store: %s", given.step, error)
                await asyncio.sleep(self._engine.settings.store_retry_seconds)
        if run is None or run.owner != self._owner:
            error = RunError(f"{given.run_id} has ended or is no longer on {self._owner}")
            raise _failure(failures.describe(error), None)

    async def _find(self, given: StepInput) -> Step[..., Any]:
        found = _defined(given)
        return found if found is not None else await self._replayed(given)

    async def _replayed(self, given: StepInput) -> Step[..., Any]:
        """The step, by bringing the body to where it asks for it."""
        handle = self._client.get_workflow_handle(given.run_id)
        rows: list[Row] = await handle.query("journal", 0, result_type=list[Row])
        journal = [e for e in from_rows(given.run_id, rows) if e.seq <= given.seq]
        # In a callback, not in our task: the body is driven with no other task current.
        found: asyncio.Future[Step[..., Any] | None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(_replay_into, found, given, journal)
        step = await found
        if step is None:
            raise NotFound(f"{given.workflow} does not come to {given.step} at {given.key}")
        return step


def _replay_into(
    found: asyncio.Future[Step[..., Any] | None], given: StepInput, journal: list[Event]
) -> None:
    began_at = next((e.at for e in journal if e.type == RUN_STARTED), journal[0].at)
    try:
        execution = Execution(find_workflow(given.workflow), journal, began_at)
        try:
            execution.replay()
            command = execution.open.get(given.key)
            found.set_result(command.step if isinstance(command, StepCall) else None)
        finally:
            execution.close()
    except Exception as error:  # noqa: BLE001 - it is the waiting activity's
        found.set_exception(error)


def _defined(given: StepInput) -> Step[..., Any] | None:
    """The step where it was defined, if it can be had from there."""
    if "<locals>" in given.qualname:
        return None
    found: Any = sys.modules.get(given.module) or importlib.import_module(given.module)
    for part in given.qualname.split("."):
        found = getattr(found, part, None)
    if isinstance(found, Step):
        step = cast("Step[..., Any]", found)
        same = (step.name, step.retries) == (given.step, given.retries)
        return step if same else None
    if callable(found) and given.retries == 0:
        return _plain_step(found, given.step)
    return None


def _plain_step(function: Callable[..., Any], name: str) -> Step[..., Any]:
    """A step for another layer's call: see `Execution.intercept`."""
    return Step[..., Any](function, name=name, retries=0)


def _failure(error: ErrorInfo, delay: float | None) -> ApplicationError:
    """What the workflow is told: the error, and when the next attempt is due, if ever."""
    return ApplicationError(
        error.message,
        {"error": error.as_json(), "delay": delay},
        type=error.type,
        non_retryable=True,
        category=ApplicationErrorCategory.BENIGN,  # ours to deal with: no warning in the log
    )


def _stops() -> int:
    """How often this attempt was begun and given up because its worker was stopped."""
    details: Any = activity.info().heartbeat_details
    return int(details[0]) if details else 0


class Attempt:
    """One attempt, for a run that is elsewhere: the `StepOwner` of its work."""

    def __init__(
        self, engine: Engine, client: Client, given: StepInput, step: Step[..., Any]
    ) -> None:
        self.id, self.workflow = given.run_id, given.workflow
        self.context = context_from(given.context)
        self.step_timeout = engine.step_timeout(given.workflow)
        self._engine, self._client, self._given, self._step = engine, client, given, step
        self._outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._unsaid: dict[str, str] = {}
        self._saying: asyncio.Task[None] | None = None

    async def outcome(self) -> str:
        """Carry it out: its result, or ApplicationError raised."""
        given = self._given
        command = StepCall(given.key, self._step, given.input.encode(), None)
        before = Retrying(given.attempts, 0.0)
        work = StepWork(self._engine, self, command, given.tried, before)
        try:
            return await self._outcome
        finally:
            task = work.task
            work.cancel()
            if task is not None and not task.done():
                await asyncio.wait({task}, timeout=self._engine.settings.cancel_seconds)
            if self._saying is not None:
                await asyncio.wait({self._saying})

    def arguments(self, command: StepCall) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return command.step.signature.decode_arguments(command.value or b"{}")

    def call_at(self, when: float, key: str, callback: Callable[[], None]) -> _Never:
        return _Never()  # the next attempt is another activity

    def step_completed(self, command: StepCall, value: bytes) -> None:
        if not self._outcome.done():
            self._outcome.set_result(value.decode())

    def step_failed(self, command: StepCall, error: ErrorInfo, attempts: int) -> None:
        self._fail(error, None)

    def step_retrying(
        self, command: StepCall, error: ErrorInfo, attempt: int, next_at: float
    ) -> None:
        self._fail(error, max(next_at - self._engine.clock.now(), 0.0))

    def interrupt(self) -> None:
        """This worker stops: another begins the attempt again."""
        if not self._outcome.done():
            stopped = ApplicationError(
                "its worker was stopped",
                type=STOPPED,
                next_retry_delay=timedelta(milliseconds=10),
                category=ApplicationErrorCategory.BENIGN,
            )
            self._outcome.set_exception(stopped)

    def _fail(self, error: ErrorInfo, delay: float | None) -> None:
        if not self._outcome.done():
            self._outcome.set_exception(_failure(error, delay))

    def broken(self, problem: BaseException) -> None:
        error = RunError(f"the worker failed while it carried out {self._given.step}")
        error.__cause__ = problem
        self._fail(failures.describe(error), None)

    async def write_chunk(self, stream: str, data: bytes, step: str, attempt: int) -> None:
        now = self._engine.clock.now()
        fence = self._given.fence
        await self._engine.store.write_chunk(self.id, fence, stream, data, now, step, attempt)

    def step_published(self, command: StepCall, name: str, value: bytes) -> None:
        # While one is being told, the newest of each name waits: what lies between is not seen.
        self._unsaid[name] = value.decode()
        if self._saying is None or self._saying.done():
            self._saying = asyncio.get_running_loop().create_task(self._say())

    async def _say(self) -> None:
        handle = self._client.get_workflow_handle(self.id)
        while self._unsaid:
            name = next(iter(self._unsaid))
            told = Publication(self._given.key, name, self._unsaid.pop(name))
            await handle.signal("published", told)


class _Never:
    """A timer that never rings."""

    def cancel(self) -> None:
        return
