"""The deterministic event loop that workflow bodies run on.

asyncio's own tasks, futures, locks, queues, `gather`, `TaskGroup` and `timeout` work on it
unchanged. What differs from a real loop:

- It never waits. `run_until_blocked` runs what is ready, in order, and returns when every task
  waits for something from outside. Whoever drives it brings that, one thing at a time.
- Its time stands still but for what the driver says; timers are handed to the driver.
- Tasks are numbered by their parents as they are made: `0`, `0.1`, `0.1.3`. The same code given
  the same results makes the same tasks in the same order.
- Sets of tasks (which asyncio uses) iterate in the same order each time, because hashes of
  tasks and futures come from their numbers, not from memory addresses.
- Real I/O, threads and subprocesses are refused.

Nothing here knows of journals or steps.
"""

from __future__ import annotations

import asyncio
import contextvars
import re
import sys
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, NoReturn

from holdfast.errors import NotInWorkflow, RunError
from holdfast.runtime import guard
from holdfast.runtime.interrupts import is_ctrl_c
from holdfast.runtime.watchdog import BodyInterrupted, BodyWatch

SPIN_LIMIT = 1_000_000
"""Callbacks in one go, without anything from outside, that make a body a busy loop."""


class WorkflowFuture(asyncio.Future[Any]):
    """A future whose hash is the same on every replay."""

    def __init__(self, *, loop: WorkflowLoop) -> None:
        self._number = loop.next_number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


_UNNAMED = re.compile(r"Task-\d+")
"""What asyncio calls a task that got no name."""
_SINGLE_CALLS = frozenset({"call_step", "call_child"})
"""Coroutines of the driver that are one command each."""


class WorkflowTask(asyncio.Task[Any]):
    """A task that knows its place: its path, and how many commands and children it has had."""

    def __init__(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, Any, Any],
        *,
        loop: WorkflowLoop,
        name: str | None,
        context: contextvars.Context | None,
        path: str,
        within: str | None = None,
    ) -> None:
        self._number = loop.next_number()
        self.path = path
        self.within = within
        """The branch that it belongs to, if it is none of its own."""
        self.commands = 0
        self.children = 0
        super().__init__(coro, loop=loop, name=name, context=context)

    @property
    def branch(self) -> str:
        """The branch of the body that it belongs to, as its path and what people call it.

        A task is called by the name it was given, or by its function's. That of the body has no
        branch; one that only makes a single call, as `gather(step())` does, has its parent's.
        """
        if self.within is not None or "." not in self.path:
            return self.within or ""
        called = self.get_name()
        if _UNNAMED.fullmatch(called):
            called = getattr(self.get_coro(), "__name__", "")
        return f"{self.path} {called[:80].encode(errors='replace').decode()}"

    def __hash__(self) -> int:
        return self._number


class WorkflowTimer(asyncio.TimerHandle):
    """A timer that tells the driver when nobody wants it any more."""

    on_cancel: Callable[[], None] | None = None

    def cancel(self) -> None:
        if not self.cancelled() and self.on_cancel is not None:
            self.on_cancel()
        super().cancel()


class WorkflowLoop(asyncio.AbstractEventLoop):
    """See the module's text. `owner` is whatever drives it; bodies find it through the loop."""

    def __init__(
        self,
        owner: Any,
        set_timer: Callable[[float, WorkflowTimer], None],
        salt: int,
        watch: BodyWatch | None = None,
    ) -> None:
        self.owner = owner
        self._watch = watch or BodyWatch()
        self.tasks: list[WorkflowTask] = []
        self.problems: list[BaseException] = []
        """Errors in plain callbacks, which nobody awaits."""
        self._set_timer = set_timer
        self._number = salt
        self._roots = 0
        self._time = 0.0
        self._ready: deque[asyncio.Handle] = deque()
        self._generators: list[AsyncGenerator[Any, Any]] = []
        self._closed = False

    # --- for the driver ---

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def advance(self, moment: float) -> None:
        """Set the time; it never goes back."""
        self._time = max(self._time, moment)

    def run_until_blocked(self) -> None:
        """Run everything that is ready, and what becomes ready by that, until nothing is."""
        outside = self._enter()
        try:
            try:
                self._run_ready()
            finally:
                stopped = self._watch.leave()
        except BodyInterrupted:
            stopped = self._watch.leave()
        finally:
            self._leave(outside)
        if stopped is not None:
            raise stopped.error()

    def _run_ready(self) -> None:
        ready, watch = self._ready, self._watch
        budget = SPIN_LIMIT
        while ready and watch.stopped is None:
            handle = ready.popleft()
            if not handle.cancelled():
                try:
                    handle._run()
                except (SystemExit, KeyboardInterrupt) as error:
                    self._contain(error)
            budget -= 1
            if budget == 0:
                raise RunError(
                    f"the workflow ran {SPIN_LIMIT:,} callbacks without waiting for anything",
                    hint="it seems to be a busy loop: wait with sleep, an event or a step",
                )

    def _contain(self, error: SystemExit | KeyboardInterrupt) -> None:
        """Keep what asyncio lets end the whole program within the run that raised it."""
        if is_ctrl_c(error):
            raise error
        if not any(task.done() and task._exception is error for task in self.tasks):  # pyright: ignore
            self.problems.append(error)  # of a plain callback: a task keeps its own

    def _enter(self) -> tuple[Any, ...]:
        """Make the body's surroundings: this loop is the running one, real I/O is refused."""
        outside = (asyncio._get_running_loop(), guard.enter())  # pyright: ignore[reportPrivateUsage]
        asyncio._set_running_loop(self)  # pyright: ignore[reportPrivateUsage]
        self._watch.enter(self)
        return outside

    @staticmethod
    def _leave(outside: tuple[Any, ...]) -> None:
        loop, guarded = outside
        guard.leave(guarded)
        asyncio._set_running_loop(loop)  # pyright: ignore[reportPrivateUsage]

    def keep(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Hold on to an async generator of the body's until the run ends."""
        self._generators.append(generator)

    def unretrieved(self) -> BaseException | None:
        """The first error of a task or callback that nobody has looked at."""
        for task in self.tasks:
            if task.done() and not task.cancelled() and task._log_traceback:  # pyright: ignore
                return task.exception()
        return self.problems[0] if self.problems else None

    @property
    def has_more_to_end(self) -> bool:
        """Whether tasks or async generators are left when the body has ended."""
        return bool(self._generators) or not all(task.done() for task in self.tasks)

    async def shutdown_asyncgens(self) -> None:
        generators, self._generators = self._generators, []
        for generator in generators:
            await generator.aclose()

    def close(self) -> None:
        """Drop the body where it stands.

        Python can't forget a suspended coroutine without running its `finally` blocks. They run
        here and now rather than whenever garbage is collected, on a closed loop on which nothing
        can be awaited and no command be given: durably, they have no effect.
        """
        self._closed = True
        self._ready.clear()
        outside = self._enter()
        try:
            try:
                for task in self.tasks:
                    task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]
                    if not task.done():
                        _unwind(task)
                    elif not task.cancelled():
                        task.exception()  # looked at: asyncio need not report it
            finally:
                self._watch.leave()
        except BodyInterrupted:
            self._watch.leave()
        finally:
            self._leave(outside)
        self.tasks.clear()
        self._generators.clear()

    # --- what asyncio asks of a loop ---

    def time(self) -> float:
        return self._time

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self  # pyright: ignore[reportPrivateUsage]

    def is_closed(self) -> bool:
        return self._closed

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self._closed:
            self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._time + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = WorkflowTimer(when, callback, args, self, context)
        if self._closed:
            return handle
        if when <= self._time:
            self._ready.append(handle)
        else:
            self._set_timer(when, handle)
        return handle

    def fire(self, handle: WorkflowTimer) -> None:
        """A timer's moment has come."""
        handle.on_cancel = None
        if not handle.cancelled():
            self._ready.append(handle)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        return

    def create_future(self) -> asyncio.Future[Any]:
        return WorkflowFuture(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, Any, Any],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **_ignored: Any,
    ) -> asyncio.Task[Any]:
        guard.refuse_unordered_tasks(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        parent, within = asyncio.current_task(self), None
        if isinstance(parent, WorkflowTask):
            path = f"{parent.path}.{parent.children}"
            parent.children += 1
            if getattr(coro, "__name__", "") in _SINGLE_CALLS:
                within = parent.branch
        else:
            path = str(self._roots)
            self._roots += 1
        task = WorkflowTask(coro, loop=self, name=name, context=context, path=path, within=within)
        self.tasks.append(task)
        if len(self.tasks) > 64 and len(self.tasks) & 63 == 0:
            self._forget_finished()
        return task

    def _forget_finished(self) -> None:
        self.tasks = [
            task
            for task in self.tasks
            if not task.done() or task._log_traceback  # pyright: ignore
        ]

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error: BaseException | None = context.get("exception")
        if "task" in context or "future" in context:
            return  # a task's error is found by `unretrieved`, at a moment that replays
        if error is not None:
            self.problems.append(error)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)


UNWIND_LIMIT = 1000
"""How often a coroutine may await something while it is being closed."""


def _unwind(task: WorkflowTask) -> None:
    """Close a task's coroutine, however often its `finally` blocks try to await something."""
    coroutine: Any = task.get_coro()
    for _ in range(UNWIND_LIMIT):
        try:
            coroutine.close()
        except RuntimeError:
            continue  # it awaited something in a `finally`: close that, too
        except BaseException:  # noqa: BLE001 - whatever a dropped body raises concerns nobody
            return
        return


_kept: weakref.WeakSet[AsyncGenerator[Any, Any]] = weakref.WeakSet()


def keep_generators() -> None:
    """See to the async generators of workflow bodies in this thread, while its loop runs.

    They are kept until the run ends: when the garbage collector would finish them is anybody's
    guess, and their `finally` blocks may call steps. All others are left to the running loop.
    """
    usual = sys.get_asyncgen_hooks()

    def first_iteration(generator: AsyncGenerator[Any, Any]) -> None:
        loop = asyncio._get_running_loop()  # pyright: ignore[reportPrivateUsage]
        if isinstance(loop, WorkflowLoop):
            _kept.add(generator)
            loop.keep(generator)
        elif usual.firstiter is not None:
            usual.firstiter(generator)

    def collected(generator: AsyncGenerator[Any, Any]) -> None:
        if generator not in _kept and usual.finalizer is not None:
            usual.finalizer(generator)

    if getattr(usual.firstiter, "__qualname__", "") != first_iteration.__qualname__:
        sys.set_asyncgen_hooks(firstiter=first_iteration, finalizer=collected)


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise NotInWorkflow(
            f"a workflow body may not use the event loop's {name}",
            hint="put real I/O, threads and subprocesses into a @step",
        )

    return refuse


# What a workflow body may not do is everything else that a loop can do.
for _name in dir(asyncio.AbstractEventLoop):
    if not _name.startswith("_") and _name not in WorkflowLoop.__dict__:
        setattr(WorkflowLoop, _name, _refusal(_name))
