"""An agent in a workflow: each model call and each tool call is a step that happens once.

It prints:

    looked up A-7
    the worker is killed
    Your lamp is on its way.
    model calls: 2, look-ups: 1
"""

import asyncio

from holdfast import Agent, send_event, start, tool, wait_for_event, workflow
from holdfast.gateway import Say, ScriptedModel
from holdfast.testing import Harness

looked_up: list[str] = []


@tool(idempotent=True)
async def find_order(id: str) -> str:
    """The state of an order."""
    looked_up.append(id)
    print("looked up", id)
    return "lamp, sent this morning"


CLERK = Agent("scripted/clerk", "You answer for a shop.", [find_order])
SCRIPT = [Say(tools=[("find_order", {"id": "A-7"})]), "Your lamp is on its way."]


@workflow
async def answer(question: str) -> str:
    reply = await CLERK.run(question)
    await wait_for_event("read", timeout="1h")
    return reply.output


async def main() -> None:
    with ScriptedModel("clerk", SCRIPT) as model:
        async with Harness() as harness:
            run = await start(answer, "Where is my order A-7?")
            await harness.until_blocked()
            print("the worker is killed")
            await harness.crash()
            await send_event("read")
            print(await run.result())
        print(f"model calls: {len(model.requests)}, look-ups: {len(looked_up)}")


if __name__ == "__main__":
    asyncio.run(main())
