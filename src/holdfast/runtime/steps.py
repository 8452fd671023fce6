"""Carrying out a step: its attempts, time limits, heartbeats and retries.

Steps run on the worker's own loop, in contexts of their own, never on the workflow's. What came
of a step is reported to the run, which records it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from holdfast.clock import Timer as ClockTimer
from holdfast.durations import seconds
from holdfast.errors import HoldfastError, RetryableError, RunError, StepTimeout
from holdfast.runtime import failures
from holdfast.runtime.commands import StepCall
from holdfast.runtime.context import StepContext
from holdfast.runtime.interrupts import is_ctrl_c
from holdfast.runtime.run_context import RunContext
from holdfast.session import Caller, CurrentStep, set_caller

if TYPE_CHECKING:
    from holdfast.records import ErrorInfo
    from holdfast.runtime.engine import Engine
    from holdfast.runtime.history import Retrying


class StepOwner(Protocol):
    """The run that a step is carried out for, and that is told what comes of it."""

    @property
    def id(self) -> str: ...
    @property
    def workflow(self) -> str: ...
    @property
    def context(self) -> RunContext: ...
    @property
    def step_timeout(self) -> float | None: ...

    def arguments(self, command: StepCall) -> tuple[tuple[Any, ...], dict[str, Any]]: ...
    def call_at(self, when: float, key: str, callback: Callable[[], None]) -> ClockTimer: ...
    def step_completed(self, command: StepCall, value: bytes) -> None: ...
    def step_failed(self, command: StepCall, error: ErrorInfo, attempts: int) -> None: ...
    def step_retrying(
        self, command: StepCall, error: ErrorInfo, attempt: int, next_at: float
    ) -> None: ...
    def step_published(self, command: StepCall, name: str, value: bytes) -> None: ...
    async def write_chunk(self, stream: str, data: bytes, step: str, attempt: int) -> None: ...
    def broken(self, problem: BaseException) -> None: ...


class StepWork:
    """One step of one run, from its first attempt here to its end."""

    __slots__ = (
        "_attempts",
        "_command",
        "_context",
        "_engine",
        "_last_sign",
        "_loop",
        "_loop_time",
        "_run",
        "_step",
        "_task",
        "_timeout",
        "_timer",
        "_tried",
        "due_at",
    )

    def __init__(
        self, engine: Engine, run: StepOwner, command: StepCall, tried: int, before: Retrying
    ) -> None:
        next_at = before.next_at
        self.due_at: float | None = next_at
        """When the next attempt is due; None while one is under way."""
        self._engine, self._run = engine, run
        self._command = command
        self._step = command.step
        self._timeout = command.step.timeout
        if self._timeout is None:
            self._timeout = run.step_timeout
        self._attempts = before.attempts
        self._tried = tried
        """Of these, the ones that a retry of the run has forgiven."""
        self._timer: ClockTimer | None = None
        self._task: asyncio.Task[bytes] | None = None
        self._context: StepContext | None = None
        self._last_sign = 0.0
        self._loop_time: Callable[[], float] | None = None
        """The worker's loop's clock, once a time limit is watched by it."""
        if next_at <= engine.clock.now():
            self._begin()
        else:
            self._timer = run.call_at(next_at, command.key, self._begin)

    @property
    def under_way(self) -> bool:
        return self.due_at is None

    @property
    def task(self) -> asyncio.Task[bytes] | None:
        return self._task

    def cancel(self) -> None:
        """Nobody wants the result any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._context is not None:
            self._context.cancelled = True
        if self._task is not None:
            self._task.remove_done_callback(self._ended)
            self._task.cancel()

    # --- one attempt ---

    def _begin(self) -> None:
        self._timer = None
        self.due_at = None
        self._attempts += 1
        context = self._engine.context.copy()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._attempt(), context=context)
        self._task.add_done_callback(self._ended, context=self._engine.callback_context)

    async def _attempt(self) -> bytes:
        # In one coroutine, the usual way: each layer costs every step a microsecond.
        engine, run, step = self._engine, self._run, self._step
        key = self._command.key
        current = CurrentStep(
            run.id, run.workflow, step.name, key, self._attempts, f"{run.id}:{key}"
        )
        self._context = StepContext(current, run.context, self)
        set_caller(Caller(engine, current, self._context))
        try:
            args, kwargs = run.arguments(self._command)
            if self._timeout is not None or step.idle_timeout is not None:
                result = await self._call_in_time(args, kwargs)
            else:
                function = engine.substitute(step)
                if function is None and not step.is_async:
                    result = await engine.threads.run(step.function, args, kwargs)
                else:
                    result = await (function or step.function)(*args, **kwargs)
            return step.signature.encode_result(result, engine.settings.max_payload)
        except (SystemExit, KeyboardInterrupt) as error:
            if step.is_async and is_ctrl_c(error):
                raise
            raise self._escaped(error) from error  # asyncio would end the worker by it

    async def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        function = self._engine.substitute(self._step)
        try:
            if function is None and not self._step.is_async:
                return await self._engine.threads.run(self._step.function, args, kwargs)
            return await (function or self._step.function)(*args, **kwargs)
        except (SystemExit, KeyboardInterrupt) as error:
            if self._step.is_async and is_ctrl_c(error):
                raise
            raise self._escaped(error) from error  # asyncio would end the worker by it

    def _escaped(self, error: BaseException) -> RunError:
        """What an attempt ends with that raised what is no Exception."""
        what = failures.describe(error)
        said = f"called sys.exit({what.message})" if what.type == "SystemExit" else f"raised {what}"
        return RunError(f"{self._step.name} {said}")

    async def _call_in_time(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        step, loop = self._step, asyncio.get_running_loop()
        self._loop_time = loop.time
        began = self._last_sign = loop.time()
        reason = ""
        task = loop.create_task(self._call(args, kwargs))
        try:
            while not task.done():
                moment = asyncio.get_running_loop().time()
                left: list[float] = []
                if self._timeout is not None:
                    left.append(began + self._timeout - moment)
                    reason = f"{step.name} took longer than {self._timeout:g} s"
                if step.idle_timeout is not None:
                    idle = self._last_sign + step.idle_timeout - moment
                    if not left or idle < left[0]:
                        reason = f"{step.name} was silent for {step.idle_timeout:g} s"
                    left.append(idle)
                if min(left) <= 0:
                    raise StepTimeout(
                        reason, hint="raise the limit, or call heartbeat() more often"
                    )
                await asyncio.wait({task}, timeout=min(left))
            return task.result()
        finally:
            if not task.done():
                if self._context is not None:
                    self._context.cancelled = True
                task.cancel()
                await asyncio.wait({task})

    def beat(self) -> None:
        """The step is alive."""
        # From any thread: the loop's clock may be read from everywhere, and a float is set whole.
        if self._loop_time is not None:
            self._last_sign = self._loop_time()

    def publish(self, name: str, data: bytes) -> None:
        """Let others see a value of the step's at once."""
        if asyncio._get_running_loop() is self._loop:  # pyright: ignore[reportPrivateUsage]
            self._run.step_published(self._command, name, data)
        else:  # the step is a plain function, in a thread
            told = self._run.step_published
            self._loop.call_soon_threadsafe(told, self._command, name, data)

    async def write(self, stream: str, data: bytes) -> None:
        """Add a piece to one of the run's streams."""
        writing = self._run.write_chunk(stream, data, self._command.key, self._attempts)
        if asyncio.get_running_loop() is self._loop:
            await writing
        else:  # a loop of the step's own, in a thread: the store belongs to the worker's
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(writing, self._loop))

    # --- its end ---

    def _ended(self, task: asyncio.Task[bytes]) -> None:
        try:
            self._conclude(task)
        except BaseException as problem:
            if is_ctrl_c(problem):
                raise
            self._run.broken(problem)

    def _conclude(self, task: asyncio.Task[bytes]) -> None:
        self._task = None
        if task.cancelled():
            self._failed(RunError(f"{self._step.name} was cancelled from within"))
            return
        error = task.exception()
        if error is None:
            self._run.step_completed(self._command, task.result())
        elif issubclass(type(error), Exception):
            self._failed(error)
        else:
            escaped = self._escaped(error)
            escaped.__cause__ = error
            self._failed(escaped)

    def _failed(self, error: BaseException) -> None:
        counted = self._attempts - self._tried
        try:
            again = _may_pass(error) and self._step.retry_rules.allow(error)
        except BaseException as problem:
            if is_ctrl_c(problem):
                raise
            problem.__cause__ = error  # the step's own predicate has failed
            error, again = problem, False
        if not again or counted > self._step.retries:
            self._run.step_failed(self._command, failures.describe(error), self._attempts)
            return
        delay = self._step.backoff.delay(counted, self._engine.luck())
        if issubclass(type(error), RetryableError):
            try:
                after = cast("RetryableError", error).retry_after
                delay = delay if after is None else seconds(after)
            except Exception as unusable:  # noqa: BLE001 - whatever the step has put there
                unusable.__cause__ = error
                self._run.step_failed(self._command, failures.describe(unusable), self._attempts)
                return
        next_at = self._engine.clock.now() + delay
        self.due_at = next_at
        described = failures.describe(error)
        self._run.step_retrying(self._command, described, self._attempts, next_at)
        self._timer = self._run.call_at(next_at, self._command.key, self._begin)


def _may_pass(error: BaseException) -> bool:
    """Whether the error may be gone at the next attempt."""
    # By type(), for isinstance() asks the error itself, which is foreign code.
    return not issubclass(type(error), HoldfastError) or cast("HoldfastError", error).passing
