"""Replay: a workflow's body and its journal, kept in step.

Same events in, same commands out: no clock, no I/O, no randomness. Given a journal it runs the
body on the deterministic loop, checks every command against the recorded one, and hands over
each recorded completion in the journal's order, one at a time, with the body run until it
blocks in between. From then on, the live run is the same: the engine hands over completions as
they are recorded. Reading events is the store's job; carrying out commands is the engine's.

A command's key is its task's path and its place in that task, so that parallel branches do not
shift one another's keys.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import json
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeGuard, TypeVar

from holdfast.errors import CodecError, HoldfastError, NonDeterminismError, RunError
from holdfast.ids import derived_id
from holdfast.records import (
    ATTRIBUTES_SET,
    CANCEL_REQUESTED,
    PATCH_MARKED,
    STEP_FAILED,
    STREAM_WRITTEN,
    UPDATE_ANSWERED,
    VALUE_PUBLISHED,
    Event,
)
from holdfast.runtime import failures, outcomes, run_context
from holdfast.runtime.codec import MAX_BYTES, Codec
from holdfast.runtime.commands import (
    Child,
    Command,
    CommandFuture,
    StepCall,
    Timer,
    Wait,
    Webhook,
    describe,
)
from holdfast.runtime.continuation import ContinueAsNew
from holdfast.runtime.definitions import Step, Workflow
from holdfast.runtime.history import History
from holdfast.runtime.loop import WorkflowLoop, WorkflowTask, WorkflowTimer
from holdfast.runtime.watchdog import BodyWatch
from holdfast.session import Caller, set_caller
from holdfast.store.base import END_OF


@dataclass(frozen=True, slots=True)
class Completed:
    result: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    error: BaseException
    caused_by: list[int]
    """Journal places of the failures it came from: what a retry has to do again."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    pass


@dataclass(frozen=True, slots=True)
class Continued:
    """The body goes on as a new run, with this input."""

    input: bytes


Outcome = Completed | Failed | Cancelled | Continued


A = TypeVar("A")
R = TypeVar("R")


@lru_cache(maxsize=256)
def _step_of(function: Callable[..., Any], name: str) -> Step[..., Any]:
    """A step for another layer's call; that layer sees to retries itself."""
    return Step[..., Any](function, name=name, retries=0)


class Diverged(BaseException):
    """Stops a body that has left its journal, or was dropped.

    No error: `except Exception` must not catch it.
    """


class Execution:
    """One run's body in memory, at the point its journal has reached."""

    def __init__(
        self,
        workflow: Workflow[..., Any],
        journal: Sequence[Event],
        began_at: float,
        max_payload: int = MAX_BYTES,
        watch: BodyWatch | None = None,
    ) -> None:
        self.workflow = workflow
        self.max_payload = max_payload
        self.history = History(journal)
        self.run_id = journal[0].run_id
        self.issued: list[Command] = []
        """New commands, not in the journal yet; the engine takes them."""
        self.dropped: list[Command] = []
        """Commands the body no longer waits for; the engine takes them."""
        self.open: dict[str, Command] = {}
        self.outcome: Outcome | None = None
        self._divergence: HoldfastError | None = None
        self._abandoned: set[str] = set()
        self._outside = 0
        self._failures: list[tuple[BaseException, int]] = []
        self._patches: dict[str, bool] = {}
        self._random: dict[str, random.Random] = {}
        self._held: deque[Event] = deque()
        self._finishing = False
        facts = journal[0].facts
        self._seed: str = facts["seed"]
        salt = hashlib.blake2b(self._seed.encode(), digest_size=6).digest()
        self.loop = WorkflowLoop(self, self._set_timer, int.from_bytes(salt, "big") << 8, watch)
        self.loop.advance(began_at)
        self.context = run_context.of_journal(journal[0].at, facts, workflow.name, began_at)
        """What the run knows about itself; see `run_context`."""
        for mark in self.history.marks:
            self.context = run_context.after(self.context, mark)
        self._root = self._begin(journal[0].value or b"{}")

    # --- driving ---

    def _begin(self, input: bytes) -> WorkflowTask:
        args, kwargs = self.workflow.signature.decode_arguments(input)
        body = self.workflow.function(*args, **kwargs)
        # A context of its own: nothing of the engine's may be seen in the body.
        context = contextvars.Context()
        context.run(set_caller, Caller(interceptor=self.intercept))
        task = self.loop.create_task(body, context=context)
        assert isinstance(task, WorkflowTask)
        return task

    def replay(self) -> None:
        """Bring the body to where the journal ends."""
        self._run()
        while self.history.deliveries:
            self._hand_over(self.history.deliveries.popleft())
        self.history.check_all_asked_for()
        self._check_blocked_for_good()

    def deliver(self, event: Event, held: Sequence[Event] = ()) -> None:
        """Hand a completion that has just been recorded to the body; for a cancellation, with
        those that were held back until then."""
        if held:
            self.history.held.update(each.seq for each in held)
            for each in held:
                self._hand_over(each)
        self._hand_over(event)
        self._check_blocked_for_good()

    def _hand_over(self, event: Event) -> None:
        self.loop.advance(event.at)
        if event.type == CANCEL_REQUESTED:
            self._cancel()
        elif event.key:
            self._complete(event)
        else:
            self.context = run_context.after(self.context, event)
        if event.seq not in self.history.held:
            self._run()

    def _cancel(self) -> None:
        if self.outcome is not None:
            # It came to its end in memory alone, with a worker that died: the end was not
            # recorded, and the cancellation was.
            self.outcome = Cancelled()
        self._root.cancel()

    def _complete(self, event: Event) -> None:
        command = self.open.pop(event.key, None)
        if command is not None:
            self._resolve(command, event)
        elif event.key not in self._abandoned:
            raise NonDeterminismError(
                f"the journal has {event.type} for {event.key}, which the code did not ask for",
                hint="finish old runs first, or guard the new path with patched('…')",
            )

    def _resolve(self, command: Command, event: Event) -> None:
        if isinstance(command, Timer) and command.handle is not None:
            self.loop.fire(command.handle)
            return
        future = command.future
        assert future is not None
        future.on_cancel = None
        command.future = None  # they hold one another: let go, so that both are freed at once
        if future.done():
            return
        try:
            future.set_result(outcomes.value_of(command, event))
        except CodecError as error:
            if event.type != STEP_FAILED:
                raise self._unreadable(command, error) from error
            self._fail(future, error, event)
        except Exception as error:  # noqa: BLE001 - it is the body's to handle
            self._fail(future, error, event)

    @staticmethod
    def _unreadable(command: Command, error: CodecError) -> CodecError:
        """A recorded result that does not fit what the code says now: nothing for the body."""
        return CodecError(
            f"the recorded result of {command.name} at {command.key} does not fit its type: "
            f"{error.message}",
            hint="the type was changed since it was recorded: let it take the old values, too"
            + (f" ({error.hint})" if error.hint else ""),
        )

    def _fail(self, future: CommandFuture, error: Exception, event: Event) -> None:
        self._failures.append((error, event.seq))
        future.set_exception(error)

    def _run(self) -> None:
        self._settle()
        if self._root.done() and self.outcome is None:
            self._finish()

    def _settle(self) -> None:
        self.loop.run_until_blocked()
        while self._held and self._divergence is None:
            # Results kept over a retry, for commands that the body has asked for again.
            self._complete(self._held.popleft())
            self.loop.run_until_blocked()
        if self._divergence is not None:
            raise self._divergence

    def _check_blocked_for_good(self) -> None:
        if self.outcome is None and not self.open:
            error = RunError(
                "the workflow waits for something that nothing can bring",
                hint="a task it waits for may have failed: see the cause",
            )
            error.__cause__ = self.loop.unretrieved()
            self.outcome = Failed(error, [])

    def _finish(self) -> None:
        """The body has ended; end its other tasks, as asyncio.run would, before the run ends."""
        if not self._finishing:
            self._finishing = True
            for task in self.loop.tasks:
                if not task.done():  # cancelling a finished task hides its error
                    task.cancel()
            if self.loop.has_more_to_end:
                self.loop.create_task(self.loop.shutdown_asyncgens())
                self._settle()
        if all(task.done() for task in self.loop.tasks):
            self.outcome = self._judge()
            self.dropped += self.open.values()
            self.open.clear()

    def _judge(self) -> Outcome:
        error: BaseException | None
        try:
            error = self._root.exception()
        except asyncio.CancelledError:
            return Cancelled()
        if error is None or _continues(error):
            forgotten = self.loop.unretrieved()
            error = error if forgotten is None else forgotten
        if error is not None and _continues(error):
            return Continued(error.input)
        if error is None:
            try:
                signature, result = self.workflow.signature, self._root.result()
                return Completed(signature.encode_result(result, self.max_payload))
            except HoldfastError as unstorable:
                error = unstorable
        origins = failures.chain(error)
        caused_by = [seq for failure, seq in self._failures if any(failure is o for o in origins)]
        return Failed(error, caused_by)

    def close(self) -> None:
        """Forget the body; the journal is all that is needed to bring it back."""
        self.loop.close()

    # --- what the body asks for ---

    @property
    def replaying(self) -> bool:
        return self.history.pending

    def next_key(self) -> str:
        """The key of the next command of the present task."""
        task = asyncio.current_task(self.loop)
        if not isinstance(task, WorkflowTask):  # in a plain callback
            self._outside += 1
            return f"~/{self._outside}"
        task.commands += 1
        return f"{task.path}/{task.commands}"

    def _issue(self, command: Command) -> None:
        if self.loop.is_closed():
            raise Diverged
        recorded = self.history.asked_before(command.key)
        if recorded is not None and not command.same_as(recorded):
            was = describe(recorded.type, recorded.facts.get("name", "?"), recorded.value)
            self._divergence = self._divergence or NonDeterminismError(
                f"at {command.key} the journal has {was}, but the code now calls "
                f"{command.describe()}",
                hint="finish old runs first, or guard the new path with patched('…')",
            )
            raise Diverged
        if recorded is None:
            kept = self.history.kept(command.key, command)
            if kept is not None:
                recorded, completion = kept
                if completion is not None:
                    self._held.append(completion)
        command.opened = recorded
        if command.future is not None or isinstance(command, Timer):
            self.open[command.key] = command
        if recorded is None:
            self.issued.append(command)

    def _await(self, command: Command) -> CommandFuture:
        future = CommandFuture(command, self._drop, self.loop)
        command.future = future
        self._issue(command)
        return future

    def _drop(self, command: Command) -> None:
        if self.open.pop(command.key, None) is not None:
            self._abandoned.add(command.key)
            self.dropped.append(command)

    async def call_step(
        self, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        value, plain = step.signature.encode_call(args, kwargs, self.max_payload)
        key = self.next_key()
        return await self._await(StepCall(key, step, value, plain, self._branch(key)))

    def _branch(self, key: str) -> str:
        """The branch of the body that asks; most steps are asked for by the body itself."""
        if "." not in key:
            return ""
        task = asyncio.current_task(self.loop)
        return task.branch if isinstance(task, WorkflowTask) else ""

    async def intercept(self, name: str, function: Callable[[A], Awaitable[R]], argument: A) -> R:
        """Carry out what another layer would do in the body as a step (see `interception`)."""
        return await self.call_step(_step_of(function, name), (argument,), {})

    def _set_timer(self, when: float, handle: WorkflowTimer) -> None:
        command = Timer(key=self.next_key(), name="timer", when=when, handle=handle)
        command.facts["fire_at"] = when
        handle.on_cancel = lambda: self._drop(command)
        self._issue(command)
        self._use_recorded_moment(command)

    async def sleep_until(self, moment: float) -> None:
        command = Timer(key=self.next_key(), name="sleep", when=moment)
        command.facts["fire_at"] = moment
        future = self._await(command)
        self._use_recorded_moment(command)
        await future

    @staticmethod
    def _use_recorded_moment(command: Timer) -> None:
        if command.opened is not None:
            command.when = command.opened.facts["fire_at"]

    async def wait_for_event(
        self,
        name: str,
        match: dict[str, Any],
        where: Callable[[Any], bool] | None,
        deadline: float | None,
    ) -> Any:
        command = Wait(key=self.next_key(), name=name, match=match, where=where, deadline=deadline)
        command.facts.update(match=match, deadline=deadline)
        future = self._await(command)
        if command.opened is not None:
            command.deadline = command.opened.facts["deadline"]
        return await future

    async def wait_for_run(self, run_id: str, result: Codec) -> Any:
        command = Wait(key=self.next_key(), name=END_OF + run_id)
        command.facts["match"] = {}
        ended = await self._await(command)
        try:
            return outcomes.outcome_of_run(ended, result)
        except CodecError as error:
            self._divergence = self._divergence or self._unreadable(command, error)
            raise Diverged from error

    async def create_webhook(self) -> tuple[str, str]:
        """A new webhook's token, and the name of the event that its use sends."""
        key = self.next_key()
        command = Webhook(key=key, name=f"@webhook/{key}")
        return await self._await(command), command.name

    async def call_child(
        self, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a child and wait for it. Its id comes from ours: asked twice, it is created once."""
        key = self.next_key()
        input = workflow.signature.encode_arguments(args, kwargs, self.max_payload)
        child_id = derived_id("run", self.run_id, key)
        command = Child(key=key, name=workflow.name, value=input)
        command.result = workflow.signature.result
        command.facts["run"] = workflow.described(child_id, input, args, kwargs, self.run_id)
        future = self._await(command)
        if command.opened is not None:
            command.facts = command.opened.facts  # a fork keeps the children it was forked with
        return await future

    # --- what is recorded without being awaited ---

    def _note(self, type: str, name: str, value: bytes | None, facts: dict[str, Any]) -> None:
        command = Command(key=self.next_key(), type=type, name=name, value=value, facts=facts)
        self._issue(command)

    def set_attributes(self, attributes: dict[str, Any]) -> None:
        self._note(ATTRIBUTES_SET, "attributes", json.dumps(attributes).encode(), {})
        self.context = run_context.with_attributes(self.context, attributes)

    def publish(self, name: str, value: bytes) -> None:
        self._note(VALUE_PUBLISHED, name, value, {})

    def answer_update(
        self, name: str, event_id: str, value: bytes | None, error: dict[str, Any] | None
    ) -> None:
        facts = {"update": event_id} if error is None else {"update": event_id, "error": error}
        self._note(UPDATE_ANSWERED, name, value, facts)

    def write_stream(self, stream: str, data: bytes) -> None:
        self._note(STREAM_WRITTEN, stream, data, {"stream": stream})

    def patched(self, patch: str) -> bool:
        if patch not in self._patches:
            new = patch in self.history.patches or not self.replaying
            self._patches[patch] = new
            if new and patch not in self.history.patches:
                # Keyed by its name, not its place: a run without the patch has no place for it.
                self.issued.append(Command(key=f"@{patch}", type=PATCH_MARKED, name=patch))
        return self._patches[patch]

    # --- what the body may ask at any time ---

    def now(self) -> float:
        return self.loop.time()

    def random(self) -> random.Random:
        """The present task's own source of randomness: the same on every replay."""
        task = asyncio.current_task(self.loop)
        path = task.path if isinstance(task, WorkflowTask) else ""
        if path not in self._random:
            self._random[path] = random.Random(f"{self._seed}\n{path}")  # noqa: S311
        return self._random[path]


def _continues(error: BaseException) -> TypeGuard[ContinueAsNew]:
    # By its type: isinstance also asks the error itself, which may raise.
    return issubclass(type(error), ContinueAsNew)
