"""A workflow that asks before it acts, for the tests of `holdfast approvals`."""

from holdfast import approval, workflow


@workflow
async def refund(amount: int) -> str:
    arguments = {"amount": amount, "why": "\x1b[2Jbroken"}
    decision = await approval("Refund", arguments=arguments, to="managers", timeout="24h")
    return f"{decision.status} by {decision.by}: {decision.note}"
