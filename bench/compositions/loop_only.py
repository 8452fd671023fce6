"""The loop alone: an agent with two tools, within one process."""

from support_ticket import Bank, Shop, mark

from holdfast import Agent, tool


@tool(idempotent=True)
async def look_up(order: str) -> str:
    """An order, by its number."""
    return Shop().look_up(order)


@tool(idempotent=False)
async def refund(order: str, amount: int) -> str:
    """Pay an order back."""
    mark("asks")
    return Bank().refund(order, amount)


clerk = Agent("scripted/desk", "You answer for a shop.", [look_up, refund])


async def answer(ticket: str) -> str:
    return (await clerk.run(ticket)).output
