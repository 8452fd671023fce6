"""Workflows for the browser tests. What lasts, lasts until the test says so."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from holdfast import Sandbox, approval, set_attributes, step, wait_for_event, workflow

FOLDER = Path(os.environ.get("FLOWS_FOLDER", "."))


@step
async def work(number: int) -> int:
    return number * 2


@step(retries=0)
async def until_told(name: str) -> str:
    """Lasts until the test makes a file of this name."""
    while not (FOLDER / name).exists():
        await asyncio.sleep(0.02)
    return name


@step(retries=0)
async def fragile(amount: int) -> int:
    if amount < 0 and not (FOLDER / "mended").exists():
        raise ValueError(f"{amount} is less than nothing")
    return amount


@workflow
async def steps(count: int = 3, task: str = "Count") -> int:
    set_attributes(task=task)
    return sum([await work(number) for number in range(count)])


@workflow
async def slow(name: str) -> str:
    set_attributes(task=f"Wait for {name}")
    await work(1)
    return await until_told(name)


@workflow
async def failing(amount: int) -> int:
    await work(amount)
    return await fragile(amount)


@workflow
async def waiting(order: str) -> Any:
    event = await wait_for_event("paid", match={"order": order}, timeout="1h")
    return None if not event else "thanks"


@workflow
async def refund(amount: int) -> str:
    decision = await approval(f"Refund {amount} €", arguments={"amount": amount}, timeout="1h")
    return f"{'refunded' if decision else 'refused'} by {decision.by}: {decision.note}"


@step(retries=0)
async def in_sandbox(name: str) -> str:
    async with await Sandbox.create(runtime="python") as sandbox:
        done = await sandbox.run("python3", "-c", "print('from inside')")
        await until_told(name)
        return done.stdout


@workflow
async def boxed(name: str) -> str:
    return await in_sandbox(name)
