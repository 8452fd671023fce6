"""Workflows for the tests of the server."""

from __future__ import annotations

import asyncio

from holdfast import (
    FatalError,
    continue_as_new,
    create_webhook,
    generate_text,
    publish,
    set_attributes,
    step,
    wait_for_event,
    wait_for_update,
    workflow,
    write_stream,
)
from holdfast.gateway import ScriptedModel
from holdfast.gateway.messages import Request
from holdfast.loop import approval as ask_people

gates: dict[str, asyncio.Event] = {}
"""What `gated` waits for, by name; made by the tests."""


@step
async def double(number: int) -> int:
    return 2 * number


@step(retries=0)
async def fragile(text: str) -> str:
    if text == "break":
        raise FatalError("it broke", hint="don't say break")
    return text.upper()


@step
async def gated(name: str) -> str:
    await gates[name].wait()
    return name


@step
async def big(size: int) -> str:
    return "x" * size


@workflow
async def doubling(number: int, times: int = 1) -> int:
    set_attributes(number=number, kind="doubling")
    for _ in range(times):
        number = await double(number)
    return number


@workflow
async def shouting(text: str) -> str:
    return await fragile(text)


@workflow
async def held(name: str) -> str:
    return await gated(name)


@workflow
async def approval(what: str) -> str:
    reply = await wait_for_event("approval", match={"what": what}, timeout="1h")
    return f"{what}: {reply.payload}" if reply else "too late"


@workflow
async def asking(order: str) -> str:
    decision = await ask_people("Refund", arguments={"order": order}, timeout="1h")
    return f"{decision.status} by {decision.by}: {decision.note}"


@workflow
async def hooked() -> object:
    hook = await create_webhook()
    await write_stream(hook.path, stream="hooks")
    reply = await hook.wait(timeout="1h")
    return reply.payload if reply else None


@workflow
async def hooked_twice() -> list[object]:
    hook = await create_webhook()
    await write_stream(hook.path, stream="hooks")
    replies = [await hook.wait(timeout="1h"), await hook.wait(timeout="1h")]
    return [reply.payload for reply in replies if reply]


@workflow
async def counting(to: int, gate: str = "") -> int:
    for number in range(to):
        await write_stream({"number": number})
        if gate and number == to // 2:
            await gated(gate)
    return to


@workflow
async def large(size: int) -> str:
    return await big(size)


async def _when_told(request: Request) -> str:
    await gates[request.messages[-1].text].wait()
    return "an answer"


ScriptedModel("gated", _when_told).register()


@step
async def asked_of_model(name: str) -> str:
    reply = await generate_text("scripted/gated", prompt=name)
    await gates[f"after {name}"].wait()
    return reply.text


@workflow
async def thoughtful(name: str) -> str:
    return await asked_of_model(name)


@workflow
async def halved() -> None:
    """Leaves half a character wherever one can be left."""
    set_attributes(task="half \ud800 a character")
    await strange_file()


@step(retries=1, backoff="1ms")
async def strange_file() -> None:
    raise FileNotFoundError("no file na\udcffme")


@workflow
async def till() -> int:
    total = 0
    while update := await wait_for_update("pay", timeout="1h"):
        if not isinstance(update.payload, int):
            update.reject("that is no amount")
            continue
        total += update.payload
        publish("total", {"sum": total, "text": "x" * (100_000 if total > 1000 else 0)})
        if update.payload == 0:
            return total
        if update.payload != 13:
            update.reply(total)
    return total


@workflow
async def hopping(n: int) -> int:
    if n > 0:
        continue_as_new(n - 1)
    return n
