"""Code that holds a worker's loop up: the worker keeps its runs, and a busy body loses its own."""

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine, RunStuck, Settings, open_engine, start, step, workflow

enough = threading.Event()
LEASE = 3.0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    enough.clear()
    return tmp_path / "store.db"


@pytest.fixture
async def engine(store: Path) -> AsyncIterator[Engine]:
    settings = Settings(lease_seconds=LEASE, body_seconds=0.4, sweep_seconds=0.2)
    async with open_engine(store, settings=settings) as opened:
        yield opened


def meanwhile(store: Path, seen: Callable[[sqlite3.Connection], bool]) -> threading.Thread:
    """Look from another thread until something is seen; then let what is busy end."""

    def look() -> None:
        connection = sqlite3.connect(store)
        patience = time.monotonic() + 100
        try:
            while not seen(connection) and time.monotonic() < patience:
                enough.wait(0.05)
        finally:
            connection.close()
            enough.set()

    thread = threading.Thread(target=look)
    thread.start()
    return thread


def until_renewed(store: Path) -> threading.Thread:
    """Wait for two renewals that the loop can not have made; the lease never ends meanwhile."""
    leases: list[float] = []

    def seen(connection: sqlite3.Connection) -> bool:
        (until,) = connection.execute("SELECT lease_until FROM workers").fetchone()
        if until not in leases:
            leases.append(until)
        return len(leases) == 3

    return meanwhile(store, seen)


@workflow
async def spins() -> None:
    while True:
        pass


@step
async def double(number: int) -> int:
    return number * 2


@workflow
async def quick() -> int:
    return await double(21)


async def test_a_body_without_end_is_parked_with_its_line_and_others_go_on(engine: Engine):
    run = await start(spins)
    other = await start(quick)
    with pytest.raises(RunStuck, match=r"without waiting for anything, at .*test_watchdog\.py"):
        await run.result()
    assert await other.result() == 42
    error = (await run.record()).error or ""
    line = spins.function.__code__.co_firstlineno
    assert f":{line + 2} in spins" in error or f":{line + 3} in spins" in error
    await run.resume()  # with the same code it is the same again
    with pytest.raises(RunStuck):
        await run.result()


@workflow
async def computes() -> str:
    while not enough.is_set():
        sum(range(1000))
    return "done"


async def test_a_body_that_computes_past_the_lease_keeps_it(store: Path):
    settings = Settings(lease_seconds=LEASE, body_seconds=1000.0)
    async with open_engine(store, settings=settings) as engine:
        await until_leased(engine)
        looking = until_renewed(store)
        assert await (await start(computes)).result() == "done"
        looking.join()


async def until_leased(engine: Engine) -> None:
    while not await engine.store.workers():
        await asyncio.sleep(0.01)


@workflow
async def can_not_be_stopped() -> str:
    enough.wait(100)  # one long call of C code
    return "done"


async def test_a_body_that_can_not_be_interrupted_is_parked_and_its_worker_given_up(
    engine: Engine, store: Path, caplog: pytest.LogCaptureFixture
):
    def is_stuck(connection: sqlite3.Connection) -> bool:
        return bool(connection.execute("SELECT 1 FROM runs WHERE status = 'stuck'").fetchone())

    looking = meanwhile(store, is_stuck)
    run = await start(can_not_be_stopped)
    with pytest.raises(RunStuck, match="can_not_be_stopped"):
        await run.result()
    looking.join()
    assert "can't be interrupted" in caplog.text
    assert await (await start(quick)).result() == 42  # it has come back: it works again
    assert await run.status() == "stuck"


@step
async def blocks() -> str:
    enough.wait(100)
    return "done"


@workflow
async def calls_blocking_step() -> str:
    return await blocks()


async def test_a_step_that_blocks_the_loop_is_named_and_costs_no_lease(
    engine: Engine, store: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING, "holdfast")
    await until_leased(engine)
    looking = until_renewed(store)
    assert await (await start(calls_blocking_step)).result() == "done"
    looking.join()
    line: Any = blocks.function.__code__.co_firstlineno + 2
    assert f"test_watchdog.py:{line} in blocks" in caplog.text
