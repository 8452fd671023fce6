"""Run workflows in a test: in memory, in virtual time, with failures and crashes on demand.

Nothing is imitated but time and the disk: the engine, the journal and the store's SQL are the
real ones. Time stands still while the test acts; while it waits for a run to end, every timer
rings as soon as nothing else is left to do, so that `24h` pass at once.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar

from holdfast import session
from holdfast.clock import Clock
from holdfast.durations import Duration, seconds
from holdfast.errors import UsageError
from holdfast.ids import new_id
from holdfast.records import Event
from holdfast.runtime.client import start
from holdfast.runtime.definitions import Step, Workflow
from holdfast.runtime.engine import Engine
from holdfast.runtime.notifications import Watchers
from holdfast.runtime.settings import Settings
from holdfast.store import opener
from holdfast.store.base import Store
from holdfast.store.sqlite.memory import MemoryDatabase
from holdfast.testing.clock import START, VirtualClock

P = ParamSpec("P")
R = TypeVar("R")

QUIET_TURNS = 3
"""Turns of the loop with nothing to do that make the engine quiet."""


class _HarnessStore(Store, Protocol):
    """A store that can be killed, and knows whether it has answered everything."""

    @property
    def process(self) -> str: ...

    @property
    def quiet(self) -> bool: ...

    async def abandon(self) -> None: ...


class _HarnessDatabase(Protocol):
    """What the stores of a harness share, one after the other."""

    def store(self, process: str, clock: Clock) -> _HarnessStore: ...

    @property
    def last_moment(self) -> float: ...

    def save(self, file: Path) -> None: ...

    def kill(self, process: str) -> None: ...

    def close(self) -> None: ...


def _on_server(name: str) -> _HarnessDatabase:
    opener.parts(name)  # says what is missing if the driver is
    from holdfast.testing.harness_server import ServerDatabase  # not everybody has its driver

    return ServerDatabase(name)


class Harness:
    """A Holdfast of its own for one test.

    `replay_always`: throw the workflow's body away and replay it after every event. A workflow
    that passes its tests this way is deterministic. `copy_of`: begin with what is in this SQLite
    store (a backup, or what `save` wrote), as if its workers had just been killed; the file itself
    is not changed.

    `store`: the address of a PostgreSQL to keep the runs in, which stay there; none: in memory.
    """

    def __init__(
        self,
        *,
        replay_always: bool = False,
        settings: Settings | None = None,
        copy_of: Path | None = None,
        store: str | None = None,
    ) -> None:
        chosen = settings or Settings()
        always = replay_always or chosen.replay_always
        self._settings = replace(chosen, replay_always=always)
        if copy_of is not None and store is not None:
            raise UsageError("a harness is in memory, as a copy, or on a server", hint="not both")
        self._database: _HarnessDatabase = (
            MemoryDatabase(copy_of) if store is None else _on_server(store)
        )
        self.clock = VirtualClock(max(START, self._database.last_moment))
        self._failures: dict[str, deque[BaseException]] = {}
        self._fakes: dict[str, Callable[..., Any]] = {}
        self.substitutes: list[Callable[[Step[..., Any]], Callable[..., Any] | None]] = []
        """Asked in turn for what is done in a step's stead, where it has no fake."""
        self.calls: dict[str, int] = {}
        """How often each step was attempted, by name."""
        self._awaited = asyncio.Event()
        """Set while the test waits for a run to end."""
        self._skipper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Harness:
        await self._open()
        self._skipper = asyncio.get_running_loop().create_task(self._skip_while_awaited())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._skipper is not None
        self._skipper.cancel()
        await asyncio.wait({self._skipper})
        session.remove_engine(self.engine)
        await self.engine.close()
        self._database.close()

    async def _open(self) -> None:
        name = new_id("wkr", at=self.clock.now())
        self._store = self._database.store(name, self.clock)
        self.engine = _HarnessEngine(
            self._store,
            worker_id=name,
            settings=self._settings,
            clock=self.clock,
            luck=lambda: 0.5,
            substitute=self._substitute,
        )
        self.engine.watchers = _AwaitedWatchers(self._store, self._awaited)
        await self.engine.open()
        session.add_engine(self.engine)

    # --- time ---

    async def until_blocked(self) -> None:
        """Wait until nothing more happens without an event, or time passing."""
        quiet = 0
        while quiet < QUIET_TURNS:
            await asyncio.sleep(0)
            if self.engine.quiet and self._store.quiet:
                quiet += 1
            else:
                quiet = 0
                await self.engine.busy_steps()

    async def skip(self, duration: Duration) -> None:
        """Let virtual time pass; whatever falls due meanwhile happens, at its moment."""
        end = self.clock.now() + seconds(duration)
        await self.until_blocked()
        while (moment := self.engine.next_alarm()) is not None and moment <= end:
            self.clock.advance(moment)
            await self.until_blocked()
        self.clock.advance(end)
        await self.until_blocked()

    async def _skip_while_awaited(self) -> None:
        while True:
            await self._awaited.wait()
            await self.until_blocked()
            moment = self.engine.next_alarm()
            if not self._awaited.is_set():
                continue
            if moment is None:
                # Only an event can help now; the test may be about to send one.
                await asyncio.sleep(0.001)
            else:
                self.clock.advance(moment)

    # --- mishaps ---

    def fail(self, step: Step[..., Any], *errors: BaseException) -> None:
        """Let the step's next attempts fail, one with each error, before it does anything."""
        self._failures.setdefault(step.name, deque()).extend(errors)

    def fake(self, step: Step[..., Any], function: Callable[..., Any]) -> None:
        """Run an async function, with the same arguments, in the step's stead."""
        if not inspect.iscoroutinefunction(function):
            raise UsageError(f"{function!r} can't stand in for a step", hint="use an async def")
        self._fakes[step.name] = function

    def _substitute(self, step: Step[..., Any]) -> Callable[..., Any] | None:
        self.calls[step.name] = self.calls.get(step.name, 0) + 1
        failures = self._failures.get(step.name)
        if failures:
            error = failures.popleft()

            async def fail(*_args: Any, **_kwargs: Any) -> None:
                raise error

            return fail
        found = self._fakes.get(step.name)
        for substitute in self.substitutes:
            found = found or substitute(step)
        return found

    def save(self, file: Path) -> None:
        """Write what is in the store now to a new SQLite file."""
        self._database.save(file)

    async def crash(self) -> None:
        """Kill the worker as `kill -9` would, and start another on what is on disk."""
        self._database.kill(self._store.process)
        session.remove_engine(self.engine)
        await self.engine.vanish()
        await self._store.abandon()
        await self._open()


class _HarnessEngine(Engine):
    """An engine that can be looked into, and killed."""

    async def vanish(self) -> None:
        """Stop as a killed process does. Nothing is written, nobody is told."""
        self._closing = True
        steps = [step.task for run in self.runs.values() for step in run.steps_under_way]
        tasks: list[asyncio.Task[Any]] = [t for t in (self._tending, *steps) if t is not None]
        for task in tasks:
            task.cancel()
        for run in list(self.runs.values()):
            run.abandon()
        self.watchers.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def quiet(self) -> bool:
        """Whether nothing happens until time passes or somebody acts."""
        settled = self._resting and not (self._prod.is_set())
        return settled and all(run.idle for run in self.runs.values())

    async def busy_steps(self) -> None:
        """Wait until one of the steps under way has ended, if there are any."""
        steps = [step for run in self.runs.values() for step in run.steps_under_way]
        tasks = {step.task for step in steps if step.task is not None}
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

    def next_alarm(self) -> float | None:
        """When the next thing is due that a run waits for."""
        moments = [run.due_at for run in self.runs.values()] + [self._due, self.scheduler.due]
        found = min((moment for moment in moments if moment is not None), default=None)
        if found is not None and found <= self.clock.now() and isinstance(self.clock, VirtualClock):
            return self.clock.next()  # the clock was set past it: it is noticed at the next look
        return found


class _AwaitedWatchers(Watchers):
    """Watchers that know whether a test is waiting for a run to end."""

    def __init__(self, store: Store, awaited: asyncio.Event) -> None:
        super().__init__(store)
        self.awaited = awaited
        self._count = 0

    async def ends(self, run_id: str) -> AsyncGenerator[Event | None]:
        self._count += 1
        self.awaited.set()
        try:
            async with aclosing(super().ends(run_id)) as ends:
                async for last in ends:
                    yield last
        finally:
            self._count -= 1
            if not self._count:
                self.awaited.clear()


async def _run(workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    async with Harness():
        run = await start(workflow, *args, **kwargs)
        return await run.result()


def run_workflow(workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a workflow to its end in virtual time, from a test that is no coroutine."""
    return asyncio.run(_run(workflow, *args, **kwargs))
