"""What runs while everything fails: steps, children, an event, a sleep, and calls of a model."""

from __future__ import annotations

import asyncio

from holdfast import sleep, step, wait_for_event, workflow
from holdfast.gateway import generate_text


@step(retries=20)
async def add(total: int, more: int) -> int:
    await asyncio.sleep(0.01)
    return total + more


@workflow
async def chaos_part(number: int) -> int:
    await sleep(0.1)
    return await add(number, 1)


@workflow
async def chaos_mixed(number: int) -> int:
    total = 0
    for more in range(5):
        total = await add(total, more)
    total += sum(await asyncio.gather(chaos_part(number), chaos_part(number + 1)))
    await wait_for_event("go", match={"number": number}, timeout="1h")
    await sleep(0.5)
    return await add(total, 1)


@workflow
async def chaos_paid(number: int) -> int:
    said = 0
    for _ in range(3):
        reply = await generate_text("scripted/echo", prompt=str(number), max_tokens=20)
        said += int(reply.text)
        said = await add(said, 0)
    return said


def result_of(number: int) -> int:
    """What `chaos_mixed` gives."""
    return 10 + (number + 1) + (number + 2) + 1
