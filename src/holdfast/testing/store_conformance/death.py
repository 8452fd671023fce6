"""The death of a process: what it had in hand is noticed, settled and taken up by the others.

A real process opens the same store, does something and is killed with -9.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
from collections.abc import Awaitable, Callable

from holdfast.records import STEP_STARTED
from holdfast.records.calls import SpendLimit
from holdfast.records.sandboxes import PROCESS_DIED
from holdfast.store.base import Store
from holdfast.store.ledger import Begun, Earlier
from holdfast.store.parts import StoreParts
from holdfast.testing.store_conformance.records import (
    Conformance,
    append,
    begin,
    call_start,
    claimed,
    event,
    new_run,
    opened,
    until,
    worker,
)
from holdfast.testing.store_conformance.sandboxes import BOX, STARTED, reading

READY = b"ready\n"
PROGRAM = """
import pickle, sys
from holdfast.testing.store_conformance import death
death.play(*pickle.load(sys.stdin.buffer))
"""
LEASE = 1.0
"""Seconds of the lease of a worker that is killed."""


def play(parts: StoreParts, part: str) -> None:
    """What the process does that is then killed."""
    asyncio.run({"calls": _calls, "sandboxes": _sandboxes, "worker": _worker}[part](parts))


async def _wait_for_death() -> None:
    os.write(1, READY)
    await asyncio.Event().wait()


async def _calls(parts: StoreParts) -> None:
    ledger = parts.ledger()
    await ledger.set_limit(SpendLimit("run:r", usd=100))
    await begin(ledger, call_start("call_1", key="k", request_hash="h"), usd=70, tokens=7)
    waits = asyncio.create_task(begin(ledger, call_start("call_2"), usd=50, wait=600.0))
    await asyncio.sleep(0)
    await ledger.set_limit(SpendLimit("run:r", usd=100))  # written after that: it is in line
    await _wait_for_death()
    await waits


async def _sandboxes(parts: StoreParts) -> None:
    writer = parts.sandbox_writer()
    writer.add_sandbox(BOX)
    writer.add_command(STARTED)
    writer.flush()
    await _wait_for_death()


async def _worker(parts: StoreParts) -> None:
    async with opened(parts, "wkr_dead") as store:
        created = await store.create(new_run(), worker("wkr_dead", lease=LEASE))
        assert created.claim is not None
        await append(store, created.claim, event(2, STEP_STARTED, "0/1", name="s"))
        await _wait_for_death()


async def killed(parts: StoreParts, part: str, meanwhile: Callable[[], Awaitable[None]]) -> None:
    """Have a process play a part in the store, and be killed; `meanwhile` it is alive."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    child = await asyncio.to_thread(
        subprocess.Popen,
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        child.stdin.write(pickle.dumps((parts, part)))
        child.stdin.close()
        assert await asyncio.to_thread(child.stdout.readline) == READY
        await meanwhile()
    finally:
        child.kill()
        await asyncio.to_thread(child.wait)
        child.stdout.close()


class DeathConformance(Conformance):
    """Nothing that a dead process held is lost, or held for ever."""

    async def test_calls_of_a_dead_process_are_settled_by_the_living(
        self, parts: StoreParts
    ) -> None:
        living = parts.ledger()
        try:

            async def alive() -> None:
                assert await living.recover() == []

            await killed(parts, "calls", alive)
            settled: list[tuple[str, str]] = []

            async def is_settled() -> bool:
                calls = await living.recover()
                settled.extend((call.start.id, call.status) for call in calls)
                return bool(settled)

            await until(is_settled)
            assert settled == [("call_1", "unknown")]
            spend = await living.spend("run:r")
            assert (spend.usd, spend.reserved_usd, spend.calls) == (70, 0, 1)
            found = await begin(living, call_start("call_3", key="k", request_hash="h"))
            assert isinstance(found, Earlier) and found.call.status == "unknown"
            await living.supersede("call_1")
            again = await begin(living, call_start("call_4", key="k", request_hash="h"), usd=30)
            assert isinstance(again, Begun), "the dead stand in nobody's way"
        finally:
            living.close()

    async def test_what_a_killed_process_left_open_is_closed_by_whoever_looks(
        self, parts: StoreParts
    ) -> None:
        async with reading(parts) as records:

            async def alive() -> None:
                box = await records.get("sbx_1")
                assert box is not None and box.live

            await killed(parts, "sandboxes", alive)

            async def is_noticed() -> bool:
                box = await records.get("sbx_1")
                assert box is not None
                return not box.live

            await until(is_noticed)
            box, command = await records.get("sbx_1"), await records.command("cmd_1")
            assert box is not None and box.stopped_because == PROCESS_DIED
            assert command is not None
            assert (command.ended, command.exit_code) == (PROCESS_DIED, None)

    async def test_the_runs_of_a_killed_worker_are_taken_over(
        self, parts: StoreParts, store: Store
    ) -> None:
        async def alive() -> None:
            await claimed(store, name="run_2")

        await killed(parts, "worker", alive)
        lost: list[str] = []

        async def is_lost() -> bool:
            lost[:] = await store.lost_workers("wkr_1")
            return bool(lost)

        await until(is_lost)
        assert lost == ["wkr_dead"]
        [claim] = await store.claim(worker(), ["flow"], 10, lost)
        assert (claim.run.id, claim.crashes) == ("run_1", 1)
        await append(store, claim, event(3, STEP_STARTED, "0/2", name="s"))
        assert [e.seq for e in await store.load("run_1")] == [1, 2, 3]
