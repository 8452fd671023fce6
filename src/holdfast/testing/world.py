"""A seeded world: several workers, one store, one clock, and everything that can go wrong.

The engine and the store are the real ones; only the event loop, the clock and the disk's delays
are ours. Each worker has a loop of its own, and the world decides, by its seed, whose next
callback runs, when a worker is killed, is paused beyond its lease, or can't write. The same seed
gives the same trace.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from holdfast.runtime.definitions import Step, Workflow
from holdfast.runtime.engine import Engine
from holdfast.runtime.settings import Settings
from holdfast.store.sqlite.memory import MemoryDatabase, MemoryStore, disk_is_full

SETTINGS = Settings(lease_seconds=6, sweep_seconds=2, idle_seconds=1, store_retry_seconds=0.3)


class WorldClock:
    """The time that passes, and the wall clock, which may be set."""

    def __init__(self) -> None:
        self.time = 1_750_000_000.0
        self.offset = 0.0
        """By how much the wall clock was set, all in all."""

    def now(self) -> float:
        """What the wall clock shows."""
        return self.time + self.offset


class SimLoop(asyncio.AbstractEventLoop):
    """A loop that runs one callback at a time, when the world says so."""

    def __init__(self, clock: WorldClock) -> None:
        self._clock = clock
        self.ready: deque[asyncio.Handle] = deque()
        self.timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = 0
        self.errors: list[dict[str, Any]] = []

    def time(self) -> float:
        return self._clock.time

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._order += 1
        heapq.heappush(self.timers, (when, self._order, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        return

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **_ignored: Any,
    ) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)

    def ripen(self) -> None:
        """Make the timers that are due ready."""
        while self.timers and self.timers[0][0] <= self.time():
            handle = heapq.heappop(self.timers)[2]
            if not handle.cancelled():
                self.ready.append(handle)

    def next_timer(self) -> float | None:
        while self.timers and self.timers[0][2].cancelled():
            heapq.heappop(self.timers)
        return self.timers[0][0] if self.timers else None

    def run_one(self) -> None:
        handle = self.ready.popleft()
        if handle.cancelled():
            return
        asyncio._set_running_loop(self)  # pyright: ignore[reportPrivateUsage]
        try:
            handle._run()
        finally:
            asyncio._set_running_loop(None)  # pyright: ignore[reportPrivateUsage]


class WallTimer:
    """Rings when the wall clock shows its moment, also if that is set back meanwhile."""

    def __init__(
        self, loop: SimLoop, clock: WorldClock, when: float, callback: Callable[[], None]
    ) -> None:
        self._loop, self._clock, self._when, self._callback = loop, clock, when, callback
        self._arm()

    def _arm(self) -> None:
        self._handle = self._loop.call_at(self._when - self._clock.offset, self._ring)

    def _ring(self) -> None:
        if self._when - self._clock.now() > 1e-6:  # less is rounding
            self._arm()
        else:
            self._callback()

    def cancel(self) -> None:
        self._handle.cancel()


class LoopClock:
    """The engine's clock, on a simulated loop."""

    def __init__(self, loop: SimLoop, clock: WorldClock) -> None:
        self._loop, self._clock = loop, clock

    boot = "the world's"

    def now(self) -> float:
        return self._clock.now()

    def steady(self) -> float:
        return self._loop.time()

    def call_at(self, when: float, callback: Callable[[], None]) -> WallTimer:
        return WallTimer(self._loop, self._clock, when, callback)

    def call_after(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, callback)


class Process:
    """One simulated worker process."""

    def __init__(self, world: World, number: int, *, works: bool = True) -> None:
        self.name = f"wkr_{number:04}"
        self.loop = SimLoop(world.clock)
        self.paused_until = 0.0
        self.world = world
        clock = LoopClock(self.loop, world.clock)
        self.store = MemoryStore(
            world.database,
            self.name,
            clock,
            delay=lambda: world.random.choice((0.0, 0.0, 0.001, 0.02, 0.3)),
            before_commit=self._disk,
        )
        asyncio._set_running_loop(self.loop)  # pyright: ignore[reportPrivateUsage]
        try:
            self.engine = Engine(
                self.store,
                worker_id=self.name,
                settings=world.settings,
                clock=clock,
                workflows=world.workflows,
                luck=world.random.random,
                substitute=lambda step: world.substitute(self, step),
                works=works,
            )
            self.main = self.loop.create_task(self.engine.open(), context=contextvars.Context())
        finally:
            asyncio._set_running_loop(None)  # pyright: ignore[reportPrivateUsage]

    def _disk(self) -> None:
        if self.world.is_disk_full(self):
            self.world.note(f"{self.name} disk error")
            raise disk_is_full()

    @property
    def runnable(self) -> bool:
        return bool(self.loop.ready) and self.paused_until <= self.world.clock.time


class World:
    """See the module's text."""

    settings = SETTINGS
    """The engines' own."""

    def __init__(self, seed: int, workflows: dict[str, Workflow[..., Any]]) -> None:
        self.random = random.Random(seed)  # noqa: S311 - to be repeatable is its purpose
        self.workflows = workflows
        self.clock = WorldClock()
        self.database = MemoryDatabase()
        self.processes: list[Process] = []
        self.dead: list[Process] = []
        self.mishaps = self.random.randrange(1, 8)
        self.disk_errors = self.random.choice((0.0, 0.0, 0.02, 0.1))
        self.trace = hashlib.sha256()
        self.steps = 0
        self._spawned = 0
        for _ in range(self.random.randrange(1, 4)):
            self.spawn()

    def note(self, text: str) -> None:
        self.trace.update(f"{self.clock.time:.6f} {text}\n".encode())

    def substitute(self, process: Process, step: Step[..., Any]) -> Callable[..., Any] | None:
        """What a worker does in a step's stead; None: the step itself."""
        return None

    def is_disk_full(self, process: Process) -> bool:
        """Whether there is no room for what a worker is about to commit."""
        return self.random.random() < self.disk_errors

    def spawn(self) -> Process:
        self._spawned += 1
        process = Process(self, self._spawned)
        self.processes.append(process)
        self.note(f"spawn {process.name}")
        return process

    def run(self, until: Callable[[], bool], limit: int = 200_000) -> bool:
        """Let things happen until the condition holds; False if they never do."""
        while self.steps < limit:
            self.steps += 1
            if self.steps % 16 == 0 and until():
                return True
            self._mishap()
            for process in self.processes:
                process.loop.ripen()
            runnable = [p for p in self.processes if p.runnable]
            if runnable:
                process = self.random.choice(runnable)
                for _ in range(self.random.choice((1, 1, 2, 5))):
                    if process.loop.ready:
                        process.loop.run_one()
                self.note(f"run {process.name}")
            elif not self._pass_time():
                return until()
        return until()

    def _pass_time(self) -> bool:
        moments = [m for p in self.processes if (m := p.loop.next_timer()) is not None]
        moments += [p.paused_until for p in self.processes if p.paused_until > self.clock.time]
        if not moments:
            return False
        self.clock.time = max(self.clock.time, min(moments))
        return True

    def _mishap(self) -> None:
        if self.mishaps <= 0 or self.random.random() > 0.01:
            return
        self.mishaps -= 1
        victim = self.random.choice(self.processes)
        if self.random.random() < 0.5:
            self.note(f"kill {victim.name}")
            self.processes.remove(victim)
            self.dead.append(victim)
            if self.random.random() < 0.5:
                self.database.kill(victim.store.process)  # noticed at once, by its socket
            elif victim.store in self.database.stores:
                self.database.stores.remove(victim.store)  # noticed when its lease runs out
            self.spawn()
        else:
            length = self.random.choice((0.5, 7.0, 30.0))
            self.note(f"pause {victim.name} for {length}")
            victim.paused_until = self.clock.time + length
            if len(self.processes) < 2:
                self.spawn()

    def close(self) -> None:
        """Unwind what is left, so that nothing lingers beyond the test."""
        for process in (*self.processes, *self.dead):
            for run in list(process.engine.runs.values()):
                run.abandon()
            for task in asyncio.all_tasks(process.loop):
                task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]
                coroutine: Any = task.get_coro()
                coroutine.close()
        self.database.connection.close()
