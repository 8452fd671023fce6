"""Workflows for the browser tests. What lasts, lasts until the test says so."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from holdfast import (
    Sandbox,
    approval,
    generate_text,
    set_attributes,
    step,
    wait_for_event,
    workflow,
)
from holdfast.gateway import ScriptedModel
from holdfast.gateway.messages import Request

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
async def parent_of_slow(name: str) -> str:
    return await slow(name)


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


async def _when_told(request: Request) -> str:
    name = request.messages[-1].text
    while not (FOLDER / name).exists():
        await asyncio.sleep(0.01)
    return f"said of {name}"


ScriptedModel("patient", _when_told).register()


@step(retries=0)
async def ask_model(name: str) -> str:
    reply = await generate_text("scripted/patient", prompt=name)
    await until_told(f"{name}-step")
    return reply.text


@workflow
async def thinking(name: str) -> str:
    return await ask_model(name)


@step(retries=0)
async def one_command(name: str) -> str:
    """A command in a sandbox that lasts until told, in a step that lasts longer."""
    async with await Sandbox.create(runtime="python") as sandbox:
        command = await sandbox.start("sleep", "600")
        await until_told(name)
        await command.kill()
        await command.wait()
        await until_told(f"{name}-step")
        return "done"


@workflow
async def commanding(name: str) -> str:
    return await one_command(name)
