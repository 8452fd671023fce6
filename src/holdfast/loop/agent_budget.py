"""An agent's budget: a limit of its own in the gateway's ledger.

Before each call the ledger reserves the worst case, and refuses a call that could pass the limit;
sub-agents' calls count too. It holds across crashes, since it is kept where the spend is.
"""

from __future__ import annotations

from decimal import ROUND_FLOOR, Decimal, InvalidOperation

from holdfast.errors import UsageError
from holdfast.gateway.calls import default_gateway
from holdfast.records.calls import NANO, SpendLimit
from holdfast.runtime.context import uuid4
from holdfast.runtime.definitions import step

Amount = Decimal | int | float | str


def dollars(amount: Amount | None) -> Decimal | None:
    """The budget as an exact number of US dollars; raises UsageError."""
    if amount is None:
        return None
    try:
        exact = Decimal(str(amount))
    except InvalidOperation:
        raise UsageError(
            f"{amount!r} is no amount", hint='budget="0.50" is half a dollar'
        ) from None
    if not exact.is_finite() or exact < 0:
        raise UsageError(f"{amount!r} is no budget", hint="0 or more US dollars")
    return exact


async def limit_spend(budget: Decimal | None) -> tuple[str, ...]:
    """Set up a limit; the tags whose calls spend no more than this together."""
    if budget is None:
        return ()
    tag = f"agent-{uuid4()}"
    await _set_budget(f"tag:{tag}", int((budget * NANO).to_integral_value(ROUND_FLOOR)))
    return (tag,)


@step(name="set the budget")
async def _set_budget(scope: str, nanodollars: int) -> None:
    await default_gateway().ledger.set_limit(SpendLimit(scope, nanodollars, None))
