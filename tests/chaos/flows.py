"""What runs while everything fails: steps, children, an event and a sleep."""

from __future__ import annotations

import asyncio

from holdfast import sleep, step, wait_for_event, workflow


@step(retries=20)
async def add(total: int, more: int) -> int:
    await asyncio.sleep(0.01)
    return total + more


@workflow
async def part(number: int) -> int:
    await sleep(0.1)
    return await add(number, 1)


@workflow
async def mixed(number: int) -> int:
    total = 0
    for more in range(5):
        total = await add(total, more)
    total += sum(await asyncio.gather(part(number), part(number + 1)))
    await wait_for_event("go", match={"number": number}, timeout="1h")
    await sleep(0.5)
    return await add(total, 1)


def result_of(number: int) -> int:
    """What `mixed` gives."""
    return 10 + (number + 1) + (number + 2) + 1
