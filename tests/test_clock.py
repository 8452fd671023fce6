"""The clocks: what is due follows the wall clock, what takes time does not."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import pytest

from holdfast import Settings, sleep, start, step, workflow
from holdfast.clock import SystemClock, boot_id
from holdfast.ids import new_id
from holdfast.runtime.engine import Engine
from holdfast.store.sqlite.memory import MemoryDatabase, MemoryStore
from holdfast.testing import Harness, VirtualClock
from waiting import LIMIT


class SetClock(SystemClock):
    """The machine's clocks, the one on the wall set as the test likes."""

    LOOK_SECONDS = 0.01

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


async def test_a_long_timer_rings_when_the_wall_clock_is_set_beyond_it() -> None:
    clock, rung = SetClock(), asyncio.Event()
    timer = clock.call_at(clock.now() + 7200, rung.set)
    await asyncio.sleep(0)
    clock.ahead = 7201
    async with asyncio.timeout(LIMIT):
        await rung.wait()
    timer.cancel()


async def test_a_timer_does_not_ring_early_when_the_wall_clock_is_set_back() -> None:
    clock = SetClock()
    moment = clock.now() + 0.05
    rung: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    timer = clock.call_at(moment, lambda: rung.set_result(clock.now()))
    clock.ahead = -0.2
    async with asyncio.timeout(LIMIT):
        assert await rung >= moment
    timer.cancel()


async def test_a_cancelled_timer_is_not_watched_any_more() -> None:
    clock = SetClock()
    called: list[str] = []
    timer = clock.call_at(clock.now() + 7200, lambda: called.append("rung"))
    timer.cancel()
    clock.ahead = 7201
    other = asyncio.Event()
    clock.call_at(clock.now() + 0.1, other.set)
    async with asyncio.timeout(LIMIT):
        await other.wait()
    assert called == []


def test_the_steady_clock_and_the_boot_are_the_same_in_every_process() -> None:
    program = "from holdfast.clock import *; print(SystemClock().steady(), SystemClock().boot)"
    before = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    steady, boot = done.stdout.split()
    assert before <= float(steady) <= time.monotonic()
    assert boot == boot_id() == SystemClock().boot


# --- workers ---

QUICK = Settings(lease_seconds=6, sweep_seconds=1)
hours = 3600.0


@step
async def hold(name: str) -> str:
    if name in held:
        await asyncio.Event().wait()
    return name


held: set[str] = set()


@workflow(name="clock-holds")
async def holds(name: str) -> str:
    return await hold(name)


@workflow(name="clock-naps")
async def naps(seconds: float) -> str:
    await sleep(seconds)
    return "woke"


class Two:
    """Two workers, in one process, on one store and one clock."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.database = MemoryDatabase()
        self.engines: list[Engine] = []

    async def add(self) -> Engine:
        name = new_id("wkr", at=self.clock.now())
        store = MemoryStore(self.database, name, self.clock)
        known = {each.name: each for each in (holds, naps)}
        engine = Engine(store, worker_id=name, settings=QUICK, clock=self.clock, workflows=known)
        await engine.open()
        self.engines.append(engine)
        return engine

    async def pass_time(self, seconds: float) -> None:
        """Let time pass in small steps, with everything done that is due."""
        for _ in range(int(seconds * 2)):
            self.clock.advance(self.clock.now() + 0.5)
            for _ in range(30):
                await asyncio.sleep(0)


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    held.clear()
    made = Two()
    yield made
    held.clear()
    for engine in made.engines:
        await engine.close()
    made.database.connection.close()


@pytest.mark.parametrize("jump", [-2 * hours, 2 * hours, -30 * 24 * hours])
async def test_a_worker_that_stops_renewing_is_replaced_though_the_clock_was_set(
    two: Two, jump: float
) -> None:
    first, second = await two.add(), await two.add()
    held.add("x")
    new = _new(two, "clock-holds", {"name": "x"})
    created = await first.create(new)
    assert created.claim is not None
    await two.pass_time(2)
    two.clock.set(two.clock.now() + jump)
    held.clear()
    first.runs[new.id].abandon()
    first._tending.cancel()  # type: ignore[union-attr]
    await two.pass_time(QUICK.lease_seconds + 3)
    record = await second.store.get(new.id)
    assert record is not None and record.status == "completed"


@pytest.mark.parametrize("jump", [-2 * hours, 2 * hours])
async def test_nobody_takes_a_live_workers_runs_because_the_clock_was_set(
    two: Two, jump: float
) -> None:
    first, second = await two.add(), await two.add()
    held.add("x")
    new = _new(two, "clock-holds", {"name": "x"})
    await first.create(new)
    await two.pass_time(2)
    two.clock.set(two.clock.now() + jump)
    await two.pass_time(3 * QUICK.lease_seconds)
    assert list(first.runs) == [new.id] and not second.runs
    assert {worker.id for worker in await first.store.workers()} == {
        engine.me.id for engine in two.engines
    }


async def test_a_lease_of_an_earlier_boot_has_ended_with_it(two: Two) -> None:
    first = await two.add()
    held.add("x")
    new = _new(two, "clock-holds", {"name": "x"})
    await first.create(new)
    await two.pass_time(1)
    first.runs[new.id].abandon()
    first._tending.cancel()  # type: ignore[union-attr]
    held.clear()
    two.clock.boot = "the next"  # and its steady clock begins anew
    second = await two.add()
    await two.pass_time(2)
    record = await second.store.get(new.id)
    assert record is not None and record.status == "completed"


async def test_a_run_that_was_due_stays_due_when_the_clock_is_set_back(two: Two) -> None:
    first = await two.add()
    await two.pass_time(1)
    # Due now, but not taken up yet, as by a worker that had no room.
    new = _new(two, "clock-naps", {"seconds": 0.0})
    first.works = False
    await first.create(new)
    two.clock.set(two.clock.now() - 2 * hours)
    await two.pass_time(3)
    record = await first.store.get(new.id)
    assert record is not None and record.status == "completed"


async def test_a_sleep_ends_when_the_wall_clock_says_so() -> None:
    async with Harness(settings=QUICK) as harness:
        run = await start(naps, 2 * hours)
        await harness.until_blocked()
        harness.clock.set(harness.clock.now() + 2 * hours + 1)
        await harness.skip(1)
        assert await run.status() == "completed"


async def test_a_worker_without_runs_stays_in_the_list(two: Two) -> None:
    first = await two.add()
    for _ in range(5):
        await two.pass_time(QUICK.lease_seconds)
        [worker] = await first.store.workers()
        assert (worker.id, worker.pid) == (first.me.id, os.getpid())
        assert worker.expires_at > two.clock.now()


def _new(two: Two, workflow: str, arguments: dict[str, object]):  # type: ignore[no-untyped-def]
    import json

    from holdfast.store.base import NewRun

    now, run_id = two.clock.now(), new_id("run", at=two.clock.now())
    data = json.dumps(arguments).encode()
    return NewRun(run_id, workflow, "1", data, {"seed": run_id}, now, now)
