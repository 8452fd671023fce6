"""A run inside a Temporal workflow: driven as a local worker would, by Temporal's events.

One workflow class hosts every workflow of ours, under the name of each. In it `ActiveRun` does what
it does anywhere: it replays the body, records events, pauses, cancels, ends. What differs is who
carries things out: a step is an activity, an alarm is a timer, mail comes as a signal, and an event
counts as written when it is recorded, for Temporal replays this code to the same events. The
journal in here is the truth; `mirror.py` copies it to the store.

Everything here must be deterministic: no clock but the workflow's, no chance, no I/O. The body and
its journal are ours to check; the order of activities, timers and markers is checked by Temporal.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from holdfast.clock import Timer
from holdfast.errors import HoldfastError, RunError, UnknownWorkflow
from holdfast.records import (
    ATTRIBUTES_SET,
    CHILD_DROPPED,
    CHILD_STARTED,
    COMPLETIONS,
    RUN_CANCELLED,
    RUN_COMPLETED,
    RUN_ENDS,
    RUN_PAUSED,
    RUN_STUCK,
    UPDATE_ANSWERED,
    WAIT_CREATED,
    WEBHOOK_CREATED,
    ErrorInfo,
    Event,
)
from holdfast.runtime import failures, guard
from holdfast.runtime.active import ActiveRun
from holdfast.runtime.commands import StepCall
from holdfast.runtime.definitions import Step, Workflow, find_workflow
from holdfast.runtime.engine import described_handler
from holdfast.runtime.history import Retrying
from holdfast.runtime.loop import keep_generators
from holdfast.runtime.settings import Settings
from holdfast.runtime.watchdog import BodyWatch
from holdfast.store.base import Append, Claim, Mail
from holdfast.temporal.messages import (
    Begin,
    Letter,
    Publication,
    Recorded,
    Row,
    StepInput,
    as_rows,
    context_facts,
    from_rows,
)
from holdfast.temporal.mirror import Nowhere, Sink
from holdfast.temporal.search_attributes import ATTRIBUTES, attribute_words, attributes_in
from holdfast.temporal.temporal_settings import TemporalSettings

RECORD = "holdfast.record"
"""The activity that has the store know what others depend on."""
SEEN_BY_OTHERS = frozenset(
    {WAIT_CREATED, CHILD_STARTED, CHILD_DROPPED, WEBHOOK_CREATED, UPDATE_ANSWERED}
)
"""Events that something outside waits for, or that are answered by mail."""
LONGEST = timedelta(days=3650)
HOLD_AT = 4.0
"""So many times too full, a history takes nothing more until no step is under way."""
CANCELLED_BY_TEMPORAL = -1
"""The id of the mail that stands for a cancellation by Temporal's own means."""


class Process:
    """What the workflows of this process share, and their activities with them."""

    def __init__(self, sink: Sink, settings: Settings, temporal: TemporalSettings) -> None:
        self.sink, self.settings, self.temporal = sink, settings, temporal
        self.steps: dict[tuple[str, str], Step[..., Any]] = {}
        """Steps under way, by run and key: who carries one out need not look for it."""


processes: dict[tuple[str, str], Process] = {}
"""By namespace and task queue."""
_ELSEWHERE = Process(Nowhere(), Settings(), TemporalSettings())


@workflow.defn(dynamic=True, sandboxed=False)
class HostedRun:
    """The workflow. See the module's text."""

    def __init__(self) -> None:
        self._letters: list[Letter] = []
        self._host: WorkflowHost | None = None

    @workflow.signal(name="mail")
    def mail(self, letter: Letter) -> None:
        """Something that the store has for the run."""
        self._letters.append(letter)
        if self._host is not None:
            self._host.read_soon()

    @workflow.signal(name="published")
    def published(self, told: Publication) -> None:
        """A step of the run lets others see a value."""
        if self._host is not None:
            self._host.step_published(told)

    @workflow.query(name="journal")
    def journal(self, after: int) -> list[Row]:
        """The run's events from behind a place on."""
        return [] if self._host is None else as_rows(self._host.journal[after:])

    @workflow.query(name="place")
    def place(self) -> Recorded:
        """How far the run has come."""
        return Recorded("", 0, 0) if self._host is None else self._host.place

    @workflow.run
    async def run(self, args: Sequence[RawValue]) -> Any:
        begin: Begin = workflow.payload_converter().from_payload(args[0].payload, Begin)
        try:
            find_workflow(begin.workflow)
        except UnknownWorkflow as unknown:
            # Fails this task, not the run: a worker that knows it may come.
            raise RuntimeError(str(unknown)) from unknown
        self._letters[:0] = begin.letters
        host = self._host = WorkflowHost(begin, self._letters)
        host.begin()
        await self._through(host, host.done)
        await self._through(host, host.record())
        if host.continues:
            workflow.continue_as_new(args=[host.successor()])
        return _outcome(host.journal[-1])

    async def _through(self, host: WorkflowHost, end: asyncio.Future[None]) -> None:
        """Wait for something; a cancellation meanwhile is the run's to deal with."""
        while not end.done():
            try:
                await asyncio.shield(end)
            except asyncio.CancelledError:
                if workflow.cancellation_reason() is None:  # evicted: nothing may follow
                    host.evicted()
                    raise
                self._letters.append(Letter(CANCELLED_BY_TEMPORAL, "cancel"))
                host.read_soon()
        end.result()


def _outcome(last: Event) -> Any:
    """What Temporal is told of a run's end: its result returned, or its failure raised."""
    if last.type == RUN_COMPLETED:
        return json.loads(last.value or b"null")
    if last.type == RUN_CANCELLED and workflow.cancellation_reason() is not None:
        raise asyncio.CancelledError
    if last.type in (RUN_PAUSED, *RUN_ENDS) and "error" not in last.facts:
        return {"holdfast": last.type.removeprefix("run.")}
    info = ErrorInfo.from_json(last.facts["error"])
    kind = "RunStuck" if last.type == RUN_STUCK else info.type
    raise ApplicationError(info.message, type=kind, non_retryable=True)


class _WorkflowClock:
    """The time that Temporal replays."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    boot = "temporal"

    def now(self) -> float:
        return self._loop.time()

    def steady(self) -> float:
        return self._loop.time()

    def call_after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        # Whole milliseconds, upwards: Temporal rounds down, and a timer must not be early.
        return self._loop.call_later(math.ceil(max(seconds, 0.0) * 1000) / 1000, callback)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return self.call_after(when - self.now(), callback)


class _Journal:
    """Where the run's events go; `write_chunk` is for steps, which are elsewhere."""

    def __init__(self, host: WorkflowHost) -> None:
        self._host = host

    def append(self, append: Append) -> None:
        self._host.append(append)

    async def write_chunk(
        self, run_id: str, fence: int, stream: str, data: bytes, at: float, step: str, attempt: int
    ) -> int:
        raise AssertionError("steps write their streams where they are carried out")


class WorkflowHost:
    """Has one run in hand, on a workflow's loop."""

    def __init__(self, begin: Begin, letters: list[Letter]) -> None:
        info = workflow.info()
        self.process = processes.get((info.namespace, info.task_queue), _ELSEWHERE)
        self.journal = from_rows(begin.id, begin.journal)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.continues = False
        """Whether it goes on with a new history, from here."""
        self.steps: dict[str, ActivityStep] = {}
        self.settings = self.process.settings
        self.clock = _WorkflowClock(asyncio.get_running_loop())
        self.store = _Journal(self)
        self.body_watch = BodyWatch()
        self._begin, self._letters = begin, letters
        self._loop = asyncio.get_running_loop()
        self._run = ActiveRun(self, Claim(begin.run(), begin.fence, 0), list(self.journal))
        self._refused: set[int] = set()
        self._tokens = 0
        self._noted_at = 0
        self._recording = False
        self._held: list[Append] = []
        """What the body is not told any more, because a new history begins with it."""
        self._attributes = attributes_in(self.journal)

    @property
    def place(self) -> Recorded:
        """How far the run has come."""
        return Recorded(self._begin.id, self._begin.fence, self.journal[-1].seq)

    def begin(self) -> None:
        """Let the run go on."""
        guard.install()
        # In a callback, not in our task: the body is driven with no other task current.
        self._loop.call_soon(self._first)

    def _first(self) -> None:
        keep_generators()
        self._run.begin()
        self._read()

    def evicted(self) -> None:
        """This process forgets the run; Temporal has its history."""
        for step in self.steps.values():
            step.forget()
        self.steps.clear()
        self._run.forget()

    # --- the journal ---

    def append(self, append: Append) -> None:
        """Events of the run: recorded, for whoever replays this comes to the same."""
        length = workflow.info().get_current_history_length()
        if length != self._noted_at:  # in a new task: Temporal has what came before
            self._noted_at = length
            self.process.sink.accepted(append.run_id, append.fence, self.journal[-1].seq)
        self.journal += append.events
        self.process.sink.note(append.run_id, append.fence, append.events)
        for event in append.events:
            if event.type == ATTRIBUTES_SET:
                self._show_attributes(json.loads(event.value or b"{}"))
        if any(event.type in SEEN_BY_OTHERS for event in append.events):
            self._record_soon()
        self._loop.call_soon(self._tell, append)

    def _tell(self, append: Append) -> None:
        """What is recorded is handed to the run, unless a new history is to begin with it."""
        if self.done.done():
            return
        keep_generators()
        holding = bool(self._held)
        self._held.append(append)
        if not self._run.is_steered and (holding or self._is_full(append)):
            if not self._run.is_busy:  # the journal says all
                self.continues = True
                self._run.abandon()
        else:
            self._release()

    def _release(self) -> None:
        held, self._held = self._held, []
        for append in held:
            append.settle(None, None)

    def _is_full(self, append: Append) -> bool:
        """Whether the history is so long that a new one is to begin where this comes to an end."""
        fill = self._fill
        limit = HOLD_AT if self._run.is_busy else 1
        return fill >= limit and append.events[-1].type in COMPLETIONS

    @property
    def _fill(self) -> float:
        """How full the history is, by the settings that the run has begun with."""
        info, begin = workflow.info(), self._begin
        events, megabytes = begin.history_events, begin.history_megabytes
        by_size = info.get_current_history_size() / (megabytes * 1e6)
        return max(info.get_current_history_length() / events, by_size)

    def _show_attributes(self, changed: dict[str, Any]) -> None:
        """In Temporal's own words, for whoever looks for the run there."""
        self._attributes = {
            k: v for k, v in {**self._attributes, **changed}.items() if v is not None
        }
        workflow.upsert_memo({"attributes": self._attributes})
        if self._begin.indexed:
            words = attribute_words(self._attributes)
            workflow.upsert_search_attributes([ATTRIBUTES.value_set(words)])  # pyright: ignore[reportUnknownMemberType]

    def _record_soon(self) -> None:
        if not self._recording:
            self._recording = True
            self._loop.call_soon(self._record_now)

    def _record_now(self) -> None:
        self._recording = False
        if not self.done.done():
            self._start_record().add_done_callback(_ignored)

    def _start_record(self) -> workflow.ActivityHandle[None]:
        return workflow.start_activity(
            RECORD,
            self.place,
            start_to_close_timeout=timedelta(seconds=60),
            retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=10)),
        )

    def record(self) -> workflow.ActivityHandle[None]:
        """Have the store know the whole journal."""
        return self._start_record()

    def successor(self) -> Begin:
        """The run from here on, for a new history."""
        begin = self._begin
        return Begin(
            begin.id,
            begin.workflow,
            begin.version,
            begin.fence,
            begin.created_at,
            begin.started_at,
            begin.timeout,
            begin.deadline,
            hashlib.blake2b(begin.secret.encode(), digest_size=32).hexdigest(),
            as_rows(self.journal),
            list(self._letters),
            self.process.temporal.history_events,
            self.process.temporal.history_megabytes,
            begin.indexed,
        )

    # --- mail ---

    def read_soon(self) -> None:
        """Mail has come."""
        self._loop.call_soon(self._read)

    def _read(self) -> None:
        keep_generators()
        letters, self._letters[:] = list(self._letters), []
        for letter in letters:
            mail = letter.mail(self._begin.id)
            if self.done.done():
                return
            if letter.id in self._refused or not self._run.receive(mail):
                self._refuse(mail)
            elif not self._run.has_seen(mail):
                self._letters.append(letter)
        if self._held and self._run.is_steered:
            self._release()

    def _refuse(self, mail: Mail) -> None:
        if mail.id != CANCELLED_BY_TEMPORAL:
            self._refused.add(mail.id)
            self.process.sink.refused(mail.id)

    def step_published(self, told: Publication) -> None:
        """Pass on what a step has let others see."""
        step = self.steps.get(told.key)
        if step is not None:
            value = told.value.encode()
            self._loop.call_soon(self._run.step_published, step.command, told.name, value)

    # --- what the run asks for ---

    def workflow(self, name: str) -> Workflow[..., Any]:
        return find_workflow(name)

    def step_timeout(self, workflow: str) -> float | None:
        own = find_workflow(workflow).step_timeout
        return self.settings.step_timeout if own is None else own

    def begin_step(
        self, run: ActiveRun, command: StepCall, tried: int, before: Retrying
    ) -> ActivityStep:
        step = self.steps[command.key] = ActivityStep(self, run, command, tried, before)
        return step

    def new_token(self) -> str:
        self._tokens += 1
        made = f"{self._begin.secret}/{self._tokens}".encode()
        return hashlib.blake2b(made, digest_size=32).hexdigest()

    def failure_handler(self, run: ActiveRun, info: ErrorInfo) -> dict[str, Any] | None:
        return described_handler(find_workflow(run.workflow), run.id, info)

    def settled(self, run: ActiveRun) -> None:
        return

    def look_for_mail(self) -> None:
        self.read_soon()

    def write_soon(self, run: ActiveRun) -> None:
        run.write_out()

    def trouble(self, run: ActiveRun, error: HoldfastError) -> None:
        raise AssertionError("what is recorded here can't be refused") from error

    def dropped(self, run: ActiveRun) -> None:
        if not self.done.done():
            self.done.set_result(None)


class ActivityStep:
    """A step as a run's work: an activity for each attempt, a timer between two."""

    def __init__(
        self, host: WorkflowHost, run: ActiveRun, command: StepCall, tried: int, before: Retrying
    ) -> None:
        self.command = command
        self.due_at: float | None = before.next_at
        self._host, self._run = host, run
        self._attempts, self._tried = before.attempts, tried
        self._timer: Timer | None = None
        self._activity: workflow.ActivityHandle[Any] | None = None
        if before.next_at <= host.clock.now():
            self._begin()
        else:
            self._timer = run.call_at(before.next_at, command.key, self._begin)

    @property
    def under_way(self) -> bool:
        return self.due_at is None

    @property
    def _place(self) -> tuple[str, str]:
        return self._run.id, self.command.key

    def cancel(self) -> None:
        """Nobody wants the result any more."""
        self._host.steps.pop(self.command.key, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._activity is not None:
            self.forget()
            self._activity.add_done_callback(_ignored)
            self._activity.cancel()

    def forget(self) -> None:
        """Listen no more."""
        self._host.process.steps.pop(self._place, None)
        if self._activity is not None:
            self._activity.remove_done_callback(self._ended)

    def _begin(self) -> None:
        self._timer = None
        self.due_at = None
        host, step = self._host, self.command.step
        self._attempts += 1
        if not workflow.unsafe.is_replaying():
            host.process.steps[self._place] = step
        label = json.loads(step.meta).get("label")
        self._activity = workflow.start_activity(
            step.name,
            self._input(),
            activity_id=f"{self.command.key}#{self._attempts}",
            result_type=str,
            summary=label,
            start_to_close_timeout=LONGEST,  # its own limits are kept where it is carried out
            heartbeat_timeout=timedelta(seconds=host.process.temporal.heartbeat_seconds),
            # What the step raises is not tried again by Temporal, only what dies with its worker;
            # how often that may be is counted by whoever begins it again.
            retry_policy=RetryPolicy(
                initial_interval=timedelta(seconds=1), backoff_coefficient=1.0
            ),
        )
        self._activity.add_done_callback(self._ended)

    def _input(self) -> StepInput:
        run, command, step = self._run, self.command, self.command.step
        place = self._host.place
        return StepInput(
            run.id,
            run.workflow,
            run.fence,
            place.seq,
            command.key,
            step.name,
            step.meta,
            step.function.__module__,
            step.function.__qualname__,
            run.input_of(command).decode(),
            self._attempts - 1,
            self._tried,
            context_facts(run.context),
            step.retries,
        )

    def _ended(self, activity: asyncio.Future[Any]) -> None:
        keep_generators()
        self._run.guarded(lambda: self._conclude(activity))()

    def _conclude(self, activity: asyncio.Future[Any]) -> None:
        self._host.process.steps.pop(self._place, None)
        self._activity = None
        if activity.cancelled():
            self._failed(RunError(f"{self.command.name} was cancelled by Temporal's means"))
            return
        error = activity.exception()
        if error is None:
            self._host.steps.pop(self.command.key, None)
            self._run.step_completed(self.command, activity.result().encode())
            return
        cause = error.cause if isinstance(error, ActivityError) else error
        if isinstance(cause, ApplicationError) and cause.details:
            self._raised(cause.details[0])
        else:
            self._failed(RunError(f"{self.command.name} could not be carried out: {cause}"))

    def _raised(self, facts: dict[str, Any]) -> None:
        info = ErrorInfo.from_json(facts["error"])
        delay: float | None = facts["delay"]
        if delay is None:
            self._host.steps.pop(self.command.key, None)
            self._run.step_failed(self.command, info, self._attempts)
            return
        self.due_at = self._host.clock.now() + delay
        self._run.step_retrying(self.command, info, self._attempts, self.due_at)
        self._timer = self._run.call_at(self.due_at, self.command.key, self._begin)

    def _failed(self, error: Exception) -> None:
        self._host.steps.pop(self.command.key, None)
        self._run.step_failed(self.command, failures.describe(error), self._attempts)


def _ignored(activity: asyncio.Future[Any]) -> None:
    """Nobody waits for it: its failure, if it is one, is looked at, so that nobody reports it."""
    if not activity.cancelled():
        activity.exception()
