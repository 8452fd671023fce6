"""What runs on Temporal while its processes are killed: steps, a child, an agent that pays, a wait."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from holdfast import Agent, sleep, step, tool, wait_for_event, workflow
from holdfast.gateway import Say, ScriptedModel

EFFECTS = Path(os.environ.get("EFFECTS_OF_CHAOS", "effects"))


def _clerk(request: Any) -> Say:
    last = request.messages[-1]
    if last.role == "user":
        return Say(tools=[("pay", {"order": last.text})])
    return Say(" ".join(part.text for part in last.parts))


ScriptedModel("clerk-of-chaos", _clerk).__enter__()


@tool
async def pay(order: str) -> str:
    """Pay for an order: not to be done twice."""
    file = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{order}\n".encode())
    os.close(file)
    await asyncio.sleep(0.1)
    return "paid"


@step(retries=3)
async def add_under_fire(total: int, more: int) -> int:
    await asyncio.sleep(0.02)
    return total + more


@workflow
async def part_under_fire(number: int) -> int:
    return await add_under_fire(number, 1)


@workflow
async def under_fire(number: int) -> list[Any]:
    total = 0
    for more in range(3):
        total = await add_under_fire(total, more)
    total += await part_under_fire(number)
    agent = Agent("scripted/clerk-of-chaos", "You pay.", [pay])
    said = (await agent.run(f"order-{number}")).output
    await wait_for_event("fire", match={"number": number}, timeout="1h")
    await sleep(0.1)
    return [await add_under_fire(total, 0), said]


def total_of(number: int) -> int:
    """The number that `under_fire` gives."""
    return 3 + number + 1
