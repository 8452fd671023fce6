"""Loop and runtime: the same agent in a workflow; a person agrees to the refund."""

from support_ticket import Bank, Shop

from holdfast import Agent, tool, workflow


@tool(idempotent=True)
async def look_up(order: str) -> str:
    """An order, by its number."""
    return Shop().look_up(order)


@tool(idempotent=False, needs_approval=True, approval_timeout="24h")
async def refund(order: str, amount: int) -> str:
    """Pay an order back."""
    return Bank().refund(order, amount)


clerk = Agent("scripted/desk", "You answer for a shop.", [look_up, refund])


@workflow(name="loop_runtime")
async def answer(ticket: str) -> str:
    return (await clerk.run(ticket)).output
