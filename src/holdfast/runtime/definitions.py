"""`@workflow` and `@step`: what the decorators make of a function, and the registry of workflows.

In a workflow body a call of a step is journaled and a call of a workflow is a child run.
Anywhere else both are the plain functions they were.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import inspect
import json
import types
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, get_args, overload

from holdfast.durations import Duration, seconds
from holdfast.errors import UnknownWorkflow, UsageError
from holdfast.ids import new_id
from holdfast.records.subscriptions import Reaction
from holdfast.runtime.codec import Signature
from holdfast.runtime.flow_control import (
    Batch,
    Concurrency,
    Debounce,
    FlowControl,
    Key,
    RateLimit,
    Singleton,
    Throttle,
)
from holdfast.runtime.loop import WorkflowLoop
from holdfast.runtime.retry import Backoff, Errors, RetryRules, as_backoff
from holdfast.store.base import KeyPolicy, NewRun

if TYPE_CHECKING:
    from holdfast.runtime.cron import ScheduleSpec

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_RETRIES = 3
LABEL_LENGTH = 200
DEFAULT_QUEUE = "default"


def label_text(text: str) -> str:
    """A label as it is kept: on one line, of bounded length, and of whole characters."""
    line = " ".join(text.split()).encode(errors="replace").decode()
    return line if len(line) <= LABEL_LENGTH else f"{line[: LABEL_LENGTH - 1]}…"


class Step(Generic[P, R]):
    """A step: a function whose result is recorded when a workflow calls it."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        retries: int = DEFAULT_RETRIES,
        backoff: Backoff | Duration = Backoff(),
        timeout: Duration | None = None,
        idle_timeout: Duration | None = None,
        retry_on: Errors | None = None,
        give_up_on: Errors | None = None,
    ) -> None:
        if retries < 0:
            raise UsageError(f"{retries} retries are not possible")
        self.function = function
        self.name = name or function.__name__
        self.meta = json.dumps({"name": self.name})
        """What each call of it says in the journal, besides the arguments."""
        self.is_async = inspect.iscoroutinefunction(function)
        self.retries = retries
        self.backoff = as_backoff(backoff)
        self.retry_rules = RetryRules(retry_on, give_up_on)
        self.timeout = None if timeout is None else seconds(timeout)
        self.idle_timeout = None if idle_timeout is None else seconds(idle_timeout)
        functools.update_wrapper(self, function)

    @functools.cached_property
    def signature(self) -> Signature:
        return Signature(self.function)

    def options(self, *, label: str) -> Step[P, R]:
        """This step, to be called in a certain way.

        `label`: a few words that tell this call from others of the same step, on the terminal and
        on the run's page. They are no part of what replay compares: change them as you like.

        >>> await asyncio.gather(*(fetch.options(label=city)(city) for city in cities))
        """
        copy = cast("Step[P, R]", object.__new__(type(self)))
        copy.__dict__.update(self.__dict__)
        copy.__dict__["signature"] = self.signature  # gathered once, for all labels
        copy.meta = json.dumps({"name": self.name, "label": label_text(label)})
        return copy

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        loop = asyncio._get_running_loop()  # pyright: ignore[reportPrivateUsage]
        if isinstance(loop, WorkflowLoop):
            return loop.owner.call_step(self, args, kwargs)
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        raise UsageError(
            f"{self.name} is a step on a method",
            hint="steps are plain functions: their arguments are recorded, and `self` can't be",
        )

    def __repr__(self) -> str:
        return f"<step {self.name}>"


@dataclass(frozen=True)
class StartOptions:
    """How to start a run: see `Workflow.options`."""

    key: str | None = None
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    delay: Duration = 0.0
    key_policy: KeyPolicy = "return"
    timeout: Duration | None = None
    priority: Duration | None = None

    @property
    def given(self) -> list[str]:
        """The names of the options that were given."""
        found = {
            "key": self.key is not None,
            "attributes": self.attributes,
            "delay": seconds(self.delay),
            "timeout": self.timeout is not None,
            "priority": self.priority is not None,
        }
        return [name for name, given in found.items() if given]


class Workflow(Generic[P, R]):
    """A workflow: an async function that survives the process that runs it."""

    def __init__(
        self,
        function: Callable[P, Coroutine[Any, Any, R]],
        *,
        name: str | None = None,
        version: str | None = None,
        concurrency: Concurrency | int | None = None,
        on_failure: Workflow[..., Any] | None = None,
        timeout: Duration | None = None,
        step_timeout: Duration | None = None,
        schedule: ScheduleSpec | Sequence[ScheduleSpec] = (),
        on: str | Sequence[str] = (),
        match: Mapping[str, Any] | None = None,
        key: str | None = None,
        cancel_on: str | Sequence[str] = (),
        queue: str = DEFAULT_QUEUE,
        throttle: Throttle | None = None,
        rate_limit: RateLimit | None = None,
        debounce: Debounce | None = None,
        batch: Batch | None = None,
        singleton: Singleton | bool = False,
        priority: Key | Duration | None = None,
    ) -> None:
        if not inspect.iscoroutinefunction(function):
            raise UsageError(
                f"{function.__qualname__} can't be a workflow", hint="it must be an `async def`"
            )
        self.function = function
        self.name = name or function.__name__
        self.version = version or code_version(function.__code__)
        self.flow = FlowControl.of(
            function, concurrency, throttle, rate_limit, debounce, batch, singleton, priority
        )
        if on_failure is not None and on_failure.start_options.key is not None:
            raise UsageError(
                f"the failure handler {on_failure.name} can't have a key",
                hint="it is started once for each failed run anyway",
            )
        self.on_failure = on_failure
        self._timeout = None if timeout is None else _limit(timeout)
        self.step_timeout = None if step_timeout is None else seconds(step_timeout)
        self.start_options = StartOptions()
        self.queue = queue
        self.schedules = tuple(schedule) if isinstance(schedule, Sequence) else (schedule,)
        self.reactions = _reactions(function, _names(on), match, key, _names(cancel_on))
        if key is not None:
            self.flow.refuse_key(self.name)
        functools.update_wrapper(self, function)

    @functools.cached_property
    def signature(self) -> Signature:
        return Signature(self.function)

    def options(
        self,
        *,
        key: str | None = None,
        attributes: dict[str, Any] | None = None,
        delay: Duration = 0.0,
        key_policy: KeyPolicy = "return",
        timeout: Duration | None = None,
        priority: Duration | None = None,
    ) -> Workflow[P, R]:
        """This workflow, to be started in a certain way.

        `key`: at most one run of this workflow has it; a second start returns the first's run.
        `key_policy`: what if that run has ended: "return" it (the default), "refuse" with
        KeyUsed, or "start_new" with the key going to the new run. Before the end it is returned;
        "replace" cancels it and starts a new one that has the key.
        `attributes`: what the run can be found by. `delay`: begin so much later. `timeout`: how
        long it may take, in place of the workflow's own. `priority`: it comes before others of
        this workflow as if it had been started so much earlier. A child takes all but `key`; a
        plain call, outside of a workflow, takes none.

        >>> run = await start(ship.options(key=f"order-{order.id}"), order)
        """
        seconds(delay)
        if key_policy not in get_args(KeyPolicy):
            raise UsageError(
                f"{key_policy!r} is no key policy", hint=f"one of {', '.join(get_args(KeyPolicy))}"
            )
        copy = cast("Workflow[P, R]", object.__new__(type(self)))
        copy.__dict__.update(self.__dict__)
        timeout = None if timeout is None else _limit(timeout)
        if priority is not None:
            seconds(priority)
        if key is not None:
            self.flow.refuse_key(self.name)
        copy.start_options = StartOptions(
            key, attributes or {}, delay, key_policy, timeout, priority
        )
        return copy

    @property
    def timeout(self) -> float | None:
        """How many seconds a run of it has: by its options, or else by its definition."""
        own = self.start_options.timeout
        return self._timeout if own is None else seconds(own)

    def lane(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """The key of a call by which its run is limited, as text."""
        return self.flow.lane(args, kwargs)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        loop = asyncio._get_running_loop()  # pyright: ignore[reportPrivateUsage]
        options = self.start_options
        if isinstance(loop, WorkflowLoop):
            if options.key is not None:
                raise UsageError(
                    f"a child can't have a key: {self.name} is called with key={options.key!r}",
                    hint="a child is made once anyway; to share a run by its key, use "
                    "run = await start(….options(key=…), …), then await run.result()",
                )
            return loop.owner.call_child(self, args, kwargs)
        if options.given:
            raise UsageError(
                f"{self.name} is called as a plain function, with options for a run: "
                f"{', '.join(options.given)}",
                hint=f"start a run with start({self.name}.options(…), …)",
            )
        return self.function(*args, **kwargs)

    def new_run(
        self, input: bytes, lane: str | None, now: float, run_id: str | None = None
    ) -> NewRun:
        """A run of this workflow, to be created."""
        options, flow = self.start_options, self.flow
        run_id = run_id or new_id("run", at=now)
        new = NewRun(
            id=run_id,
            workflow=self.name,
            version=self.version,
            input=input,
            meta={"seed": run_id},
            created_at=now,
            due_at=now + seconds(options.delay),
            key=options.key,
            key_policy=options.key_policy,
            attributes=options.attributes,
            run_limit=flow.run_limit,
            lane=lane,
            lane_limit=flow.lane_limit,
            timeout=self.timeout,
        )
        if flow.is_plain and options.priority is None:
            return new
        return flow.shaped(new, self.signature, options.priority)

    def described(
        self, run_id: str, input: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], parent: str
    ) -> dict[str, Any]:
        """A run of this workflow as the event describes it that creates it."""
        options, flow = self.start_options, self.flow
        run: dict[str, Any] = {
            "id": run_id,
            "workflow": self.name,
            "version": self.version,
            "input": input.decode(),
            "meta": {"seed": run_id},
            "parent_id": parent,
            "attributes": options.attributes,
            "run_limit": flow.run_limit,
            "lane": self.lane(args, kwargs),
            "lane_limit": flow.lane_limit,
        }
        if flow.pace is not None:
            run["pace"] = flow.pace.as_text()
        if (priority := flow.priority_of(args, kwargs, options.priority)) != 0:
            run["priority"] = priority
        if seconds(options.delay):
            run["delay"] = seconds(options.delay)
        if self.timeout is not None:
            run["timeout"] = self.timeout
        return run

    def __repr__(self) -> str:
        return f"<workflow {self.name} {self.version}>"


def _names(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _reactions(
    function: Callable[..., Any],
    on: list[str],
    match: Mapping[str, Any] | None,
    key: str | None,
    cancel_on: list[str],
) -> dict[str, Reaction]:
    """What a workflow does about events, by their names."""
    if (match or key or cancel_on) and not on:
        raise UsageError(
            f"{function.__qualname__} has match, key or cancel_on without on",
            hint='on="order.created" says which event starts it',
        )
    if cancel_on and key is None:
        raise UsageError(
            f"{function.__qualname__} has cancel_on without key",
            hint="key names the field of the payload that says which run is meant",
        )
    for name in (*on, *cancel_on):
        if not name or name.startswith("@"):
            raise UsageError(f"{name!r} can't be an event's name")
    parameters = list(inspect.signature(function).parameters.values())
    if on and any(each.default is inspect.Parameter.empty for each in parameters[1:]):
        raise UsageError(
            f"{function.__qualname__} has more than one parameter",
            hint="a workflow that an event starts is given the event's payload, and nothing else",
        )
    if set(on) & set(cancel_on):
        raise UsageError("an event can't both start and cancel a run")
    plain = json.loads(json.dumps(dict(match or {})))
    return {
        **{name: Reaction("start", plain, key) for name in on},
        **{name: Reaction("cancel", {}, key) for name in cancel_on},
    }


def _limit(timeout: Duration) -> float:
    if seconds(timeout) <= 0:
        raise UsageError(f"a run can't end within {timeout!r}", hint="give it more than no time")
    return seconds(timeout)


def code_version(code: types.CodeType) -> str:
    """A short fingerprint of a function's code, without its line numbers."""
    digest = hashlib.blake2b(digest_size=4)

    def add(each: types.CodeType) -> None:
        digest.update(each.co_code)
        digest.update(repr((each.co_names, each.co_varnames)).encode())
        for constant in each.co_consts:
            if isinstance(constant, types.CodeType):
                add(constant)
            elif not isinstance(constant, frozenset):  # whose order differs between processes
                digest.update(repr(constant).encode())

    add(code)
    return digest.hexdigest()


_workflows: dict[str, Workflow[..., Any]] = {}
_registrations = 0


def register(workflow: Workflow[..., Any]) -> None:
    """Make a workflow known by its name in this process."""
    known = _workflows.get(workflow.name)
    if known is not None and _place(known) and _place(workflow) not in (None, _place(known)):
        raise UsageError(
            f"two workflows are named {workflow.name!r}: {_place(known)} and {_place(workflow)}",
            hint='give one another name: @workflow(name="…")',
        )
    global _registrations
    _workflows[workflow.name] = workflow
    _registrations += 1


def _place(workflow: Workflow[..., Any]) -> str | None:
    """Where a workflow is defined; None if within a function, as in tests: the newest counts."""
    qualname = workflow.function.__qualname__
    if "<locals>" in qualname:
        return None
    return f"{qualname} in {workflow.function.__code__.co_filename}"


def registered() -> dict[str, Workflow[..., Any]]:
    """The workflows this process knows, by name."""
    return _workflows


def registrations() -> int:
    """How often a workflow was made known: by that others notice that there are new ones."""
    return _registrations


def find_workflow(name: str) -> Workflow[..., Any]:
    """The workflow of that name, or UnknownWorkflow."""
    try:
        return _workflows[name]
    except KeyError:
        known = ", ".join(sorted(_workflows)) or "none"
        raise UnknownWorkflow(
            f"no workflow is named {name!r} here (known: {known})",
            hint="import the module that defines it, or name it to `holdfast worker`",
        ) from None


@overload
def step(function: Callable[P, Awaitable[R]], /) -> Step[P, Coroutine[Any, Any, R]]: ...
@overload
def step(function: Callable[P, R], /) -> Step[P, Any]: ...
@overload
def step(
    *,
    name: str | None = None,
    retries: int = DEFAULT_RETRIES,
    backoff: Backoff | Duration = ...,
    timeout: Duration | None = None,
    idle_timeout: Duration | None = None,
    retry_on: Errors | None = None,
    give_up_on: Errors | None = None,
) -> _StepDecorator: ...
def step(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Mark a function as a step: called in a workflow, its result is recorded.

    `retries`: how often to try again after an error (3). `backoff`: the first delay, or a
    Backoff. `timeout`: limit of each attempt. `idle_timeout`: longest silence between calls
    of `step_context().heartbeat()`. `retry_on`, `give_up_on`: the errors that are worth another
    attempt, and those that are not: exception classes, or a function of the error. A plain `def`
    runs in a thread.

    >>> @step(retries=5, timeout="2m")
    ... async def fetch(url: str) -> str: ...
    """
    if function is not None:
        return Step[..., Any](function)

    def decorate(function: Callable[..., Any]) -> Step[..., Any]:
        return Step[..., Any](function, **options)

    return decorate


class _StepDecorator:
    @overload
    def __call__(
        self, function: Callable[P, Awaitable[R]], /
    ) -> Step[P, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Step[P, Any]: ...
    def __call__(self, function: Any, /) -> Any: ...


@overload
def workflow(function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    version: str | None = None,
    concurrency: Concurrency | int | None = None,
    on_failure: Workflow[..., Any] | None = None,
    timeout: Duration | None = None,
    step_timeout: Duration | None = None,
    schedule: ScheduleSpec | Sequence[ScheduleSpec] = (),
    on: str | Sequence[str] = (),
    match: Mapping[str, Any] | None = None,
    key: str | None = None,
    cancel_on: str | Sequence[str] = (),
    queue: str = DEFAULT_QUEUE,
    throttle: Throttle | None = None,
    rate_limit: RateLimit | None = None,
    debounce: Debounce | None = None,
    batch: Batch | None = None,
    singleton: Singleton | bool = False,
    priority: Key | Duration | None = None,
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Workflow[P, R]]: ...
def workflow(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Mark an async function as a workflow: a run of it survives the process it runs in.

    `version`: recorded on each run (by default a fingerprint of the code). `concurrency`: how
    many runs may be under way. `on_failure`: a workflow that is started with a Failure when a
    run of this one fails. `timeout`: how long a run may take from the moment it may begin, waits,
    pauses and the queue included; then it fails with RunTimeout. `step_timeout`: limit of each
    attempt of the steps it calls that have no `timeout` of their own. `schedule`: when runs of it
    are started by themselves, as `cron(…)` or `every(…)` say, or several of them. `on`: the events
    that start one, with their payload as its argument; `match`: fields of the payload and their
    values, as of `wait_for_event`; `key`: the field whose value is the run's key; `cancel_on`: the
    events that cancel the run with the same value there. `queue`: which workers take its runs,
    where some are told to take only certain queues (`holdfast worker --queue NAME`). `throttle`:
    how many begin in a stretch of time, the others wait; `rate_limit`: how many may be started,
    the others are refused; `debounce`: begin once it is quiet, with the last input; `batch`: one
    run for many events; `singleton`: one at a time; `priority`: how much earlier than it was a run
    counts as started.
    """

    def decorate(function: Callable[..., Coroutine[Any, Any, Any]]) -> Workflow[..., Any]:
        made = Workflow[..., Any](function, **options)
        register(made)
        return made

    return decorate if function is None else decorate(function)
