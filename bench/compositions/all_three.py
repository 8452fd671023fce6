"""All three: what the agent wrote is run in a sandbox before it is sent."""

from support_ticket import CHECK, Bank, Shop, mark

from holdfast import Agent, Sandbox, step, tool, workflow


@tool(idempotent=True)
async def look_up(order: str) -> str:
    """An order, by its number."""
    return Shop().look_up(order)


@tool(idempotent=False, needs_approval=True, approval_timeout="24h")
async def refund(order: str, amount: int) -> str:
    """Pay an order back."""
    return Bank().refund(order, amount)


clerk = Agent("scripted/desk", "You answer for a shop.", [look_up, refund])


@step(timeout="2m")
async def check(text: str) -> int:
    mark("check begins")
    async with await Sandbox.create(timeout="1m", memory="256mb", backend="namespace") as sandbox:
        length = int((await sandbox.run("python3", "-c", CHECK, stdin=text)).stdout)
    mark("check")
    return length


@workflow(name="all_three")
async def answer(ticket: str) -> str:
    reply = (await clerk.run(ticket)).output
    return reply if await check(reply) else "nothing to say"
