"""A run in a worker's hands: its body in memory, its steps under way, its journal growing.

The order is always the same: something completes; it is appended to the journal; when it is on
disk it is handed to the body; what the body then asks for is recorded and begun. Appends of one
run are acknowledged in order, so completions reach the body in the journal's order.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from holdfast.clock import Clock
from holdfast.clock import Timer as ClockTimer
from holdfast.errors import (
    CrashLoop,
    HoldfastError,
    InternalError,
    LeaseLost,
    RunTimeout,
    UnknownWorkflow,
)
from holdfast.ids import derived_id
from holdfast.records import (
    ATTRIBUTES_SET,
    CANCEL_REQUESTED,
    CHILD_DROPPED,
    CHILD_ENDED,
    PATCH_MARKED,
    RUN_CANCELLED,
    RUN_COMPLETED,
    RUN_CONTINUED,
    RUN_CREATED,
    RUN_FAILED,
    RUN_FORKED,
    RUN_PAUSED,
    RUN_RESUMED,
    RUN_RETRIED,
    RUN_STARTED,
    RUN_STUCK,
    STEP_CANCELLED,
    STEP_COMPLETED,
    STEP_FAILED,
    STEP_PUBLISHED,
    STEP_RETRYING,
    STEP_STARTED,
    TIMER_FIRED,
    TIMER_SET,
    VALUE_PUBLISHED,
    WAIT_RECEIVED,
    WAIT_TIMED_OUT,
    ErrorInfo,
    Event,
)
from holdfast.runtime import failures
from holdfast.runtime.commands import Child, Command, StepCall, Timer, Wait, Webhook
from holdfast.runtime.definitions import Workflow
from holdfast.runtime.history import History, Retrying, is_delivery
from holdfast.runtime.interrupts import is_ctrl_c
from holdfast.runtime.replay import Cancelled, Completed, Continued, Execution, Failed
from holdfast.runtime.run_context import RunContext
from holdfast.runtime.settings import Settings
from holdfast.runtime.steps import StepWork
from holdfast.runtime.watchdog import BodyWatch
from holdfast.store.base import TERMINATED, Append, Claim, Mail

log = logging.getLogger("holdfast")


class Work(Protocol):
    """What is being done about an open command."""

    due_at: float | None

    @property
    def under_way(self) -> bool: ...

    def cancel(self) -> None: ...


class Journals(Protocol):
    """Where a run's events and the pieces of its streams go."""

    def append(self, append: Append) -> None: ...
    async def write_chunk(
        self, run_id: str, fence: int, stream: str, data: bytes, at: float, step: str, attempt: int
    ) -> int: ...


class RunHost(Protocol):
    """What a run asks of whoever has it in hand: a worker, or another engine's workflow."""

    @property
    def settings(self) -> Settings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def store(self) -> Journals: ...
    @property
    def body_watch(self) -> BodyWatch: ...

    def workflow(self, name: str) -> Workflow[..., Any]: ...
    def step_timeout(self, workflow: str) -> float | None: ...
    def begin_step(
        self, run: ActiveRun, command: StepCall, tried: int, before: Retrying
    ) -> Work: ...
    def new_token(self) -> str: ...
    def failure_handler(self, run: ActiveRun, info: ErrorInfo) -> dict[str, Any] | None: ...

    def settled(self, run: ActiveRun) -> None: ...
    def look_for_mail(self) -> None: ...
    def write_soon(self, run: ActiveRun) -> None: ...
    def trouble(self, run: ActiveRun, error: HoldfastError) -> None: ...
    def dropped(self, run: ActiveRun) -> None: ...


class Alarm:
    """Work that consists of waiting: until a moment, or for mail alone."""

    under_way = False

    def __init__(
        self, run: ActiveRun, key: str, when: float | None, ring: Callable[[], None]
    ) -> None:
        self.due_at = when
        self._timer: ClockTimer | None = None
        if when is not None:
            self._timer = run.call_at(when, key, ring)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class ActiveRun:
    """A claimed run. Lives on the worker's loop."""

    def __init__(self, engine: RunHost, claim: Claim, journal: list[Event]) -> None:
        self.engine = engine
        self.id = claim.run.id
        self.workflow = claim.run.workflow
        self.fence = claim.fence
        self.gone = False
        """Ended, parked, given back or lost: whatever still happens is of no consequence."""
        self._crashes = claim.crashes
        assert claim.run.started_at is not None, claim.run.id
        self._claimed_at = claim.run.started_at
        self._journal = journal
        self._seq = journal[-1].seq
        self._at = journal[-1].at
        self._work: dict[str, Work] = {}
        self._unwritten: list[Event] = []
        self._unacknowledged: deque[Append] = deque()
        self._refused: int = 0
        self._seen_mail: set[int] = set()
        self._dropped_children = _dropped_children(journal)
        self._pausing = False
        self._holding = False
        """The cancellation is recorded and not on disk yet: nothing is handed over before it."""
        self._held: list[Event] = []
        """What was recorded while the run was pausing, and its body has not seen."""
        self._leaving = False
        """It was found idle and is being given back: nothing may begin meanwhile."""
        self._missed: list[tuple[str, Callable[[], None]]] = []
        """Alarms that rang while nothing might begin, with the command each is for."""
        self._timeout = claim.run.timeout
        self._deadline = claim.run.deadline
        self._cancel_seq, self._timed_out = _cancellation(journal)
        """Where the run was cancelled, in this life; and whether because its time was over."""
        self._cancelling = self._cancel_seq is not None
        """Asked to stop: a second time would interrupt the cleaning up."""
        self._bound: float | None = None
        """When the cleaning up has to be done, once the deadline has passed."""
        self._clock_timer: ClockTimer | None = None
        """For the deadline, and then for the bound."""
        self._last_word = False
        """How it ended, or why it is parked, is recorded: nothing may follow."""
        self._execution: Execution | None = None

    # --- when we are at fault ---

    def guarded(self, action: Callable[..., None]) -> Callable[..., None]:
        """A callback that, should it fail, leaves no run that nobody ends."""

        def call(*args: Any) -> None:
            try:
                action(*args)
            except BaseException as problem:
                if is_ctrl_c(problem):
                    raise
                self.broken(problem)

        return call

    def broken(self, problem: BaseException) -> None:
        """What should not fail has failed: keep the run, and say so."""
        log.error("%s can't go on", self.id, exc_info=problem)
        if not self.gone and not self._last_word:
            error = InternalError(
                f"the worker failed while it carried on this run: {failures.describe(problem)}",
                hint="what is recorded is kept; please report this, with the traceback",
            )
            error.__cause__ = problem
            self._park(error)

    # --- beginning ---

    def begin(self) -> None:
        """Bring the body to where its journal ends, and go on from there."""
        self.guarded(self._begin)()

    def _begin(self) -> None:
        if self._crashes >= self.engine.settings.crash_limit:
            self._fail(
                CrashLoop(
                    f"{self._crashes} workers in a row died while they had this run in hand",
                    hint="find out what kills them (memory? a native crash?), then retry the run",
                ),
                [],
            )
            return
        starts = (event.at for event in self._journal if event.type == RUN_STARTED)
        began_at = next(starts, None)
        if self._is_overdue and not _has_begun(self._journal):
            # It was claimed for its end alone.
            self._last_word = True
            self._fail(self._over_time("before it had begun"), [])
            return
        if began_at is None:
            # When the run was first claimed, which is on disk with the claim: a worker that dies
            # before the event is there must not leave the next one another time to begin with.
            began_at = max(self._journal[0].at, self._claimed_at)
            self.record(RUN_STARTED, at=began_at, lazy=True)
        self._began_at = began_at
        self._rebuild()
        if self._deadline is not None and not self.gone:
            self._watch_deadline(self._deadline)

    def _rebuild(self) -> None:
        if self._execution is not None:
            self._execution.close()
        try:
            execution = Execution(
                self.engine.workflow(self.workflow),
                self._journal,
                self._began_at,
                self.engine.settings.max_payload,
                self.engine.body_watch,
            )
            self._execution = execution
            execution.replay()
        except HoldfastError as error:
            self._park(error)
            return
        on_the_way = self._on_the_way()
        taken = self._work.keys() | on_the_way
        for command in list(execution.open.values()):
            if command.opened is not None and command.key not in taken:
                self._undertake(command)
        execution.issued = [c for c in execution.issued if c.key not in on_the_way]
        self._carry_on(execution)

    def _on_the_way(self) -> set[str]:
        """Keys of events that are recorded but not on disk: their commands are taken care of."""
        events = [event for append in self._unacknowledged for event in append.events]
        return {event.key for event in (*events, *self._unwritten) if event.key}

    # --- the journal ---

    def record(
        self,
        type: str,
        key: str = "",
        facts: str = "{}",
        value: bytes | None = None,
        *,
        at: float | None = None,
        lazy: bool = False,
    ) -> None:
        """Append an event; once it is on disk, whoever it concerns is told.

        `lazy`: nothing waits for it, so it need not have a commit of its own.
        """
        self._seq += 1
        self._at = max(self._at, self.engine.clock.now())
        moment = self._at if at is None else at
        self._unwritten.append(Event(self.id, self._seq, type, key, moment, facts, value))
        if lazy:
            self.engine.write_soon(self)
        else:
            self.write_out()

    def write_out(self) -> None:
        """Hand what is recorded to the store."""
        if not self._unwritten or self.gone:
            return
        append = Append(self.id, self.fence, self._unwritten, self._on_recorded)
        self._unwritten = []
        self._unacknowledged.append(append)
        if not self._refused:
            self.engine.store.append(append)
        else:
            self._refused += 1  # it goes out with those that have to be tried again

    def _on_recorded(self, append: Append, error: HoldfastError | None) -> None:
        try:
            if self.gone:
                return
            if error is not None:
                self._not_recorded(error)
                return
            self._unacknowledged.popleft()
            for event in append.events:
                if self.engine.settings.replay_always:
                    self._journal.append(event)
                self._tell(event)
        except BaseException as problem:
            if is_ctrl_c(problem):
                raise
            self.broken(problem)

    def _not_recorded(self, error: HoldfastError) -> None:
        if isinstance(error, LeaseLost):
            self.abandon()
            return
        # The disk is full, or the like. Nothing is lost: what could not be written is kept and
        # written again, in order, until it can be or the lease is lost.
        self._refused += 1
        if self._refused == len(self._unacknowledged):
            self.engine.trouble(self, error)

    def try_again(self) -> None:
        """Write again what the store has refused."""
        if self.gone:
            return
        self._refused = 0
        for append in list(self._unacknowledged):
            self.engine.store.append(append)

    def _tell(self, event: Event) -> None:
        if event.type in _ENDS:
            self.abandon()
        elif is_delivery(event) and not self._last_word:
            if event.type == CANCEL_REQUESTED:
                held, self._held, self._holding = self._held, [], False
                self._deliver(event, held)
                self._catch_up()
            elif self._pausing or self._holding:
                self._held.append(event)
            else:
                self._deliver(event)
        self._pause_if_quiet()

    def _deliver(self, event: Event, held: Sequence[Event] = ()) -> None:
        if self.engine.settings.replay_always:
            self._rebuild()
            return
        execution = self._execution
        assert execution is not None
        try:
            execution.deliver(event, held)
        except HoldfastError as error:
            self._park(error)
            return
        self._carry_on(execution)

    # --- what the body asks for ---

    def _carry_on(self, execution: Execution) -> None:
        issued, dropped = execution.issued, execution.dropped
        if dropped:
            # What was asked for and given up in one go is not begun at all.
            given_up = set(map(id, dropped)) & set(map(id, issued))
            issued = [command for command in issued if id(command) not in given_up]
            dropped = [command for command in dropped if id(command) not in given_up]
        for command in issued:
            self._open(command)
        execution.issued.clear()
        for command in dropped:
            self._drop(command)
        execution.dropped.clear()
        if execution.outcome is not None:
            self._end(execution)
        self.engine.settled(self)

    @property
    def step_timeout(self) -> float | None:
        """The limit of each attempt of its steps that have none of their own."""
        return self.engine.step_timeout(self.workflow)

    def _open(self, command: Command) -> None:
        if isinstance(command, Webhook):
            command.facts["token"] = self.engine.new_token()
        unhurried = command.type in _UNHURRIED
        self.record(command.type, command.key, command.meta(), command.value, lazy=unhurried)
        self._undertake(command)

    def _undertake(self, command: Command) -> None:
        """Begin to do something about a command."""
        key = command.key
        if isinstance(command, StepCall):
            tried = self._history.tried.get(key, 0)
            before = self._history.retrying.get(key, Retrying(tried, 0.0))
            self._work[key] = self.engine.begin_step(self, command, tried, before)
        elif isinstance(command, Timer):
            self._work[key] = Alarm(self, key, command.when, lambda: self._close(key, TIMER_FIRED))
        elif isinstance(command, Wait):
            when = command.deadline
            self._work[key] = Alarm(self, key, when, lambda: self._close(key, WAIT_TIMED_OUT))
        elif isinstance(command, Child):
            self._work[key] = Alarm(self, key, None, _nothing)

    @property
    def _history(self) -> History:
        assert self._execution is not None
        return self._execution.history

    @property
    def context(self) -> RunContext:
        """What the run knows about itself by now."""
        assert self._execution is not None
        return self._execution.context

    def arguments(self, command: StepCall) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A step's arguments: as called, or as a fork has replaced them."""
        if command.args is not None and command.key not in self._history.edits:
            return command.args, {}
        return command.step.signature.decode_arguments(self.input_of(command))

    def input_of(self, command: StepCall) -> bytes:
        """A step's arguments, as they are recorded."""
        return self._history.edits.get(command.key) or command.value or b"{}"

    def _drop(self, command: Command) -> None:
        work = self._work.pop(command.key, None)
        if work is not None:
            work.cancel()
        if isinstance(command, Child):
            self._drop_child(command)
        elif work is not None and isinstance(command, StepCall):
            self.record(STEP_CANCELLED, command.key, command.meta(), lazy=True)

    def _drop_child(self, command: Child) -> None:
        # Also for a child that was dropped before the last worker died: it may have died before
        # it could say so, and the child would go on for nobody.
        if command.key not in self._dropped_children:
            self._dropped_children.add(command.key)
            facts = {"name": command.name, "run_id": command.facts["run"]["id"]}
            self.record(CHILD_DROPPED, command.key, json.dumps(facts), lazy=True)

    # --- what comes of it ---

    def _close(
        self, key: str, type: str, facts: dict[str, Any] | None = None, value: bytes | None = None
    ) -> None:
        if self.gone or self._work.pop(key, None) is None:
            return
        self.record(type, key, json.dumps(facts or {}), value)

    def step_completed(self, command: StepCall, value: bytes) -> None:
        if not self.gone and self._work.pop(command.key, None) is not None:
            self.record(STEP_COMPLETED, command.key, "{}", value)

    def step_failed(self, command: StepCall, error: ErrorInfo, attempts: int) -> None:
        facts = {"error": error.as_json(), "attempts": attempts}
        self._close(command.key, STEP_FAILED, facts)

    def step_retrying(
        self, command: StepCall, error: ErrorInfo, attempt: int, next_at: float
    ) -> None:
        if self.gone:
            return
        facts = {"attempt": attempt, "error": error.as_json(), "next_at": next_at}
        self.record(STEP_RETRYING, command.key, json.dumps(facts), lazy=True)
        self._pause_if_quiet()
        self.engine.settled(self)

    def step_published(self, command: StepCall, name: str, value: bytes) -> None:
        if not self.gone and command.key in self._work:
            self.record(STEP_PUBLISHED, command.key, json.dumps({"name": name}), value, lazy=True)

    async def write_chunk(self, stream: str, data: bytes, step: str, attempt: int) -> None:
        now = self.engine.clock.now()
        await self.engine.store.write_chunk(self.id, self.fence, stream, data, now, step, attempt)

    def receive(self, mail: Mail) -> bool:
        """Look at a piece of mail; False if it is of no use and can be thrown away."""
        try:
            return self._receive(mail)
        except BaseException as problem:
            if is_ctrl_c(problem):
                raise
            self.broken(problem)
            return True

    def has_seen(self, mail: Mail) -> bool:
        """Whether it was looked at, or is for whoever goes on with the run."""
        return mail.id in self._seen_mail

    def _receive(self, mail: Mail) -> bool:
        if mail.id in self._seen_mail or self._execution is None:
            return True
        if self._last_word or self._leaving:
            return True  # it is for whoever goes on with the run
        if mail.kind in ("cancel", "pause", "resume", "terminate"):
            self._seen_mail.add(mail.id)
            return self._requested(mail.kind)
        if self._pausing:
            return True
        self._seen_mail.add(mail.id)
        command = self._execution.open.get(mail.key)
        if mail.damaged is not None and mail.key in self._work:
            self._park(mail.damaged)
        elif mail.kind == "ended" and mail.ended is not None and mail.key in self._work:
            ended = mail.ended
            facts = {"run_id": ended.run_id, "type": ended.type, "facts": ended.facts}
            self._close(mail.key, CHILD_ENDED, facts, ended.value)
        elif mail.kind == "event" and isinstance(command, Wait) and mail.key in self._work:
            return self._receive_event(command, mail)
        else:
            return False
        return True

    # --- requests ---

    def _requested(self, kind: Literal["cancel", "pause", "resume", "terminate"]) -> bool:
        """Do what somebody has asked of the run; False if there is nothing to do any more."""
        if kind == "terminate":
            self._terminate()
            return True
        if kind == "cancel":
            return self._asked_to_cancel()
        return self._asked_to_pause() if kind == "pause" else self._asked_to_resume()

    # --- its deadline ---

    @property
    def _is_overdue(self) -> bool:
        return self._deadline is not None and self._deadline <= self.engine.clock.now()

    def _watch_deadline(self, deadline: float) -> None:
        if self._is_overdue:
            self._deadline_passed()
        else:
            ring = self.guarded(self._deadline_passed)
            self._clock_timer = self.engine.clock.call_at(deadline, ring)

    def _deadline_passed(self) -> None:
        if self.gone or self._last_word or self._leaving:
            return  # who claims it next finds it due
        if not self._cancelling:
            self._begin_cancel({"deadline": self._deadline})
            self._timed_out = True
        self._bound_cleanup()

    def _bound_cleanup(self) -> None:
        self._bound = self.engine.clock.now() + self.engine.settings.cleanup_seconds
        ring = self.guarded(self._cleanup_took_too_long)
        self._clock_timer = self.engine.clock.call_at(self._bound, ring)

    def _cleanup_took_too_long(self) -> None:
        if self.gone or self._last_word or self._leaving:
            return
        self._last_word = True
        self._stop_work()
        limit = self.engine.settings.cleanup_seconds
        error = self._over_time(f"and its `finally` blocks had not after another {limit:g} s")
        if self._timed_out:
            self._fail(error, self._cause_of_timeout, at_once=True)
        else:
            # Somebody has cancelled it before. As a failure it would start its handler, and a
            # retry would let go on what was to stop.
            facts = {"at_once": True, "error": failures.describe(error).as_json()}
            self.record(RUN_CANCELLED, facts=json.dumps(facts))

    @property
    def _cause_of_timeout(self) -> list[int]:
        """What a retry has to forget: the cancellation."""
        return [] if self._cancel_seq is None else [self._cancel_seq]

    def _over_time(self, more: str = "") -> RunTimeout:
        limit = self._timeout or 0.0
        said = f"{self.workflow} had not ended within {limit:g} s"
        return RunTimeout(
            f"{said}, {more}" if more else said,
            hint="give it more time (timeout=…), or find out what it waits for; a retry lets it "
            "go on from there, with its time anew",
        )

    def _terminate(self) -> None:
        """End without another word to the body, which may not listen."""
        self._last_word = True
        self._stop_work()
        self.record(RUN_CANCELLED, facts=json.dumps({**TERMINATED, "at_once": True}))

    def _asked_to_cancel(self) -> bool:
        """Nothing begins from here on but what the body does because of it."""
        if self._cancelling:
            return False
        self._begin_cancel({})
        return True

    def _begin_cancel(self, facts: dict[str, Any]) -> None:
        self._cancelling = self._holding = True
        on_the_way = (event for append in self._unacknowledged for event in append.events)
        unseen = (*self._held, *on_the_way, *self._unwritten)
        held = [event.seq for event in unseen if is_delivery(event)]
        self._pausing = False
        self.record(CANCEL_REQUESTED, facts=json.dumps({"held": held, **facts}))
        self._cancel_seq = self._seq

    def _asked_to_pause(self) -> bool:
        if self._cancelling:
            return False
        self._pausing = True
        self._pause_if_quiet()
        return True

    def _asked_to_resume(self) -> bool:
        """Before it has paused: then it is as if it had never been asked to."""
        if self._pausing:
            self._pausing = False
            held, self._held = self._held, []
            for event in held:
                if not self._last_word:
                    self._deliver(event)
            self._catch_up()
        return False

    # --- while nothing may begin ---

    def call_at(self, when: float, key: str, callback: Callable[[], None]) -> ClockTimer:
        """Set an alarm for a command; it waits while nothing may begin."""
        return self.engine.clock.call_at(when, self.guarded(lambda: self._ring(key, callback)))

    def _ring(self, key: str, callback: Callable[[], None]) -> None:
        if self._pausing or self._holding or self._leaving:
            self._missed.append((key, callback))
        else:
            callback()

    def _catch_up(self) -> None:
        """Things may begin again: see to what came meanwhile."""
        missed, self._missed = self._missed, []
        for key, callback in missed:
            if key in self._work:
                callback()
        self.engine.look_for_mail()

    def leave(self) -> float | None:
        """Begin nothing more, for the run is being given back; returns when it is next due."""
        self._leaving = True
        return self.due_at

    def stay(self) -> None:
        """It could not be given back."""
        self._leaving = False
        if self._bound is not None and self._bound <= self.engine.clock.now():
            self._cleanup_took_too_long()
        elif self._bound is None and self._is_overdue:
            self._deadline_passed()
        self._catch_up()

    def _receive_event(self, wait: Wait, mail: Mail) -> bool:
        message = mail.message
        if message is None or message.id in self._history.consumed:
            return False
        if wait.where is not None:
            try:
                wanted = wait.where(json.loads(message.payload))
            except BaseException as error:
                if is_ctrl_c(error):
                    raise
                # The body's own predicate: its to handle.
                described = {"error": failures.describe(error).as_json(), "attempts": 1}
                self._close(wait.key, STEP_FAILED, described)
                return False
            if not wanted:
                return False
        self._history.consumed.add(message.id)
        facts = {"message": message.id, "event_id": message.event_id}
        self._close(wait.key, WAIT_RECEIVED, facts, message.payload)
        return True

    # --- ending ---

    def _end(self, execution: Execution) -> None:
        outcome = execution.outcome
        self._last_word = True
        self._stop_work()
        if self._timed_out:
            error = self._over_time()
            error.__cause__ = outcome.error if isinstance(outcome, Failed) else None
            self._fail(error, self._cause_of_timeout)
        elif isinstance(outcome, Completed):
            self.record(RUN_COMPLETED, value=outcome.result)
        elif isinstance(outcome, Cancelled):
            self.record(RUN_CANCELLED)
        elif isinstance(outcome, Continued):
            version = self.engine.workflow(self.workflow).version
            facts = {"run_id": derived_id("run", self.id, "continued"), "version": version}
            self.record(RUN_CONTINUED, facts=json.dumps(facts), value=outcome.input)
        elif isinstance(outcome, Failed):
            self._fail(outcome.error, outcome.caused_by)

    def _fail(self, error: BaseException, caused_by: list[int], *, at_once: bool = False) -> None:
        info = failures.describe(error)
        facts: dict[str, Any] = {"error": info.as_json(), "caused_by": caused_by}
        if at_once:
            facts["at_once"] = True
        try:
            handler = self.engine.failure_handler(self, info)
        except Exception as problem:  # noqa: BLE001 - the run has failed, whatever its handler does
            log.error("what %s does on failure can't be started: %s", self.id, problem)
            handler = None
            facts["handler_error"] = failures.describe(problem).as_json()
        if handler is not None:
            facts["handler"] = handler
        self.record(RUN_FAILED, facts=json.dumps(facts))

    def _park(self, error: HoldfastError) -> None:
        """The run can't go on with this code or this journal: keep it for somebody to look."""
        self._last_word = True
        self._stop_work()
        try:
            known = self.engine.workflow(self.workflow).version
        except (UnknownWorkflow, KeyError):
            known = None
        facts = {"error": failures.describe(error).as_json(), "version": known}
        self.record(RUN_STUCK, facts=json.dumps(facts))

    def _pause_if_quiet(self) -> None:
        if not self._pausing:  # asked after every event
            return
        quiet = not self.is_busy and self._all_written
        if quiet and not self.gone and not self._last_word:
            self._last_word = True
            self._stop_work()
            self.record(RUN_PAUSED, facts=json.dumps({"held": [event.seq for event in self._held]}))

    def _stop_work(self) -> None:
        for work in self._work.values():
            work.cancel()
        self._work.clear()

    @property
    def is_busy(self) -> bool:
        """Whether a step is under way."""
        return any(work.under_way for work in self._work.values())

    @property
    def steps_under_way(self) -> list[StepWork]:
        return [w for w in self._work.values() if isinstance(w, StepWork) and w.under_way]

    @property
    def is_steered(self) -> bool:
        """Whether a request is being dealt with, of which its journal does not tell all."""
        steered = self._pausing or self._holding or self._held
        return bool(steered or self._leaving or self._last_word)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do until an alarm rings or mail comes."""
        return self._all_written and not self.is_busy and not self.gone

    @property
    def _all_written(self) -> bool:
        return not self._unwritten and not self._unacknowledged

    @property
    def due_at(self) -> float | None:
        """When the next alarm rings, or its time is over."""
        moments = [w.due_at for w in self._work.values() if w.due_at is not None]
        limit = self._bound or self._deadline
        return min(moments if limit is None else [*moments, limit], default=None)

    def abandon(self) -> None:
        """Let go of the run, at once; its journal is with the store."""
        self.gone = True
        self._stop_work()
        if self._clock_timer is not None:
            self._clock_timer.cancel()
        self.forget()
        self.engine.dropped(self)

    def forget(self) -> None:
        """Drop the body where it stands; whatever was begun for it is somebody else's to end."""
        self.gone = True
        if self._execution is not None:
            self._execution.close()
            self._execution = None


_ENDS = frozenset({RUN_COMPLETED, RUN_FAILED, RUN_CANCELLED, RUN_CONTINUED, RUN_STUCK, RUN_PAUSED})

_UNHURRIED = frozenset({STEP_STARTED, TIMER_SET, PATCH_MARKED, ATTRIBUTES_SET, VALUE_PUBLISHED})


def _dropped_children(journal: list[Event]) -> set[str]:
    """Keys of the children that were told to stop, in this life of the run."""
    dropped: set[str] = set()
    for event in journal:
        if event.type == CHILD_DROPPED:
            dropped.add(event.key)
        elif event.type == RUN_RETRIED:
            dropped.clear()
    return dropped


def _cancellation(journal: list[Event]) -> tuple[int | None, bool]:
    """Where the run was cancelled, in this life, and whether because its time was over."""
    for event in reversed(journal):
        if event.type == CANCEL_REQUESTED:
            return event.seq, "deadline" in event.facts
        if event.type == RUN_RETRIED:
            break
    return None, False


def _has_begun(journal: list[Event]) -> bool:
    """Whether any worker has got on with the run, in this life."""
    for event in reversed(journal):
        if event.type in (RUN_CREATED, RUN_FORKED, RUN_RETRIED):
            return False
        if event.type not in (RUN_PAUSED, RUN_RESUMED):
            return True
    return False


def _nothing() -> None:
    return
