"""Workflows for the tests of the command line. What a step does is counted in $SHOP_EFFECTS."""

import asyncio
import os
from pathlib import Path

from holdfast import (
    FatalError,
    publish,
    set_attributes,
    step,
    wait_for_event,
    wait_for_update,
    workflow,
)


def effect(name: str) -> None:
    if "SHOP_EFFECTS" in os.environ:
        with Path(os.environ["SHOP_EFFECTS"]).open("a") as file:
            file.write(f"{name}\n")


@step
async def reserve(item: str) -> str:
    effect(f"reserve {item}")
    return f"reserved {item}"


@step(retries=0)
async def charge(amount: int) -> int:
    effect(f"charge {amount}")
    if amount < 0 and not Path(os.environ.get("SHOP_FIXED", "/nowhere")).exists():
        raise FatalError("the card was declined \x1b[31m\x9b", hint="ask for another card")
    return amount


@step
async def slow(name: str, seconds: float) -> str:
    effect(f"begin {name}")
    await asyncio.sleep(seconds)
    effect(f"end {name}")
    return name


@workflow
async def order(item: str, amount: int = 5) -> dict[str, str | int]:
    set_attributes(item=item)
    reserved = await reserve(item)
    return {"reserved": reserved, "charged": await charge(amount)}


@workflow
async def approved(item: str) -> str:
    await reserve(item)
    reply = await wait_for_event("approval", match={"item": item}, timeout="1h")
    return f"{item} approved by {reply.payload['by']}" if reply else "too late"


@workflow
async def lengthy(seconds: float) -> list[str]:
    first = await slow("first", 0)
    second = await slow("second", seconds)
    return [first, second]


@workflow
async def till(open_for: str = "1h") -> int:
    total = 0
    while update := await wait_for_update("pay", timeout=open_for):
        if update.payload < 0:
            update.reject("we pay nobody")
            continue
        total += update.payload
        publish("total", total)
        update.reply(total)
        if update.payload == 0:
            return total
    return total
