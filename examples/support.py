"""A support agent with a manager in the loop, on a scripted model: no key, no network.

    python examples/support.py          three tickets; a day of waiting passes at once

It prints:

    small    done    We are sorry about A-1. It is paid back 40, receipt R-A-1.
    waiting  refund(900) for a manager, 20 h on
    approved done    We are sorry about A-2. It is paid back 900, receipt R-A-2.
    late     denied  We are sorry: we can't refund A-3. Denied: nobody approved it in time. …
    3 customers told, 940 paid back

For real, with a worker, and a manager at the command line:

    holdfast run examples/support.py:support --input \\
        '{"ticket": {"customer": "ada", "text": "A-2 arrived broken: 900 back, please."}}' --detach
    holdfast worker examples/support.py
    holdfast approvals list
    holdfast approvals approve APPROVAL
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from decimal import Decimal

from holdfast import decide, list_approvals, start
from holdfast.agents.support import Order, Ticket
from holdfast.agents.support import support as make_support
from holdfast.gateway import Say, ScriptedModel
from holdfast.gateway.messages import Request, ToolResultPart
from holdfast.testing import Harness


class DemoShop:
    """Two orders in memory. A real one is a database and a payment provider."""

    def __init__(self) -> None:
        self.orders = {
            "A-1": Order("A-1", "ada", "lamp", Decimal(40)),
            "A-2": Order("A-2", "ada", "armchair", Decimal(900)),
            "A-3": Order("A-3", "ada", "sofa", Decimal(1200)),
        }
        self.told: list[str] = []

    async def order(self, id: str) -> Order | None:
        return self.orders.get(id)

    async def refund(self, order: str, amount: Decimal, key: str) -> str:
        found = self.orders[order]
        self.orders[order] = replace(found, refunded=found.refunded + amount)
        return f"R-{order}"

    async def tell(self, customer: str, text: str, key: str) -> None:
        self.told.append(f"{customer}: {text}")


def clerk(request: Request) -> Say:
    """What a model would do, by rule: look the order up, refund it, tell the customer."""
    asked = next(m.text for m in request.messages if m.role == "user")
    order = re.findall(r"[A-Z]-\d+", asked)[0]
    told = [part for part in request.messages[-1].parts if isinstance(part, ToolResultPart)]
    if not told:
        return Say("Let me look.", tools=[("look_up_order", {"order": order})])
    if '"paid":' in told[0].text:
        amount = re.findall(r"\b(\d+) back", asked)[0]
        wanted = {"order": order, "amount": amount, "reason": "arrived broken"}
        return Say("I'll refund it.", tools=[("refund", wanted)])
    if told[0].text.startswith("paid back"):
        return Say(f"We are sorry about {order}. It is {told[0].text}.")
    return Say(f"We are sorry: we can't refund {order}. {told[0].text}")


ScriptedModel("clerk", clerk).register()
SHOP = DemoShop()
support = make_support(SHOP, model="scripted/clerk", name="support-demo")


async def main() -> None:
    async with Harness() as harness:  # in virtual time
        small = await start(support, Ticket("ada", "A-1 arrived broken: 40 back, please."))
        answer = await small.result()
        print(f"small    {answer.refunds[0].status:7} {answer.text}")

        large = await start(support, Ticket("ada", "A-2 arrived broken: 900 back, please."))
        await harness.skip("20h")
        (asked,) = await list_approvals()
        print(f"waiting  {asked.tool}({asked.arguments['amount']}) for a {asked.asked_of}, 20 h on")
        await harness.crash()  # whatever happens to the worker meanwhile
        await decide(asked.id, True, by="grace", note="broken in transit")
        answer = await large.result()
        print(f"approved {answer.refunds[0].status:7} {answer.text}")

        late = await start(support, Ticket("ada", "A-3 arrived broken: 1200 back, please."))
        answer = await late.result()  # a day later, at once
        print(f"late     {answer.refunds[0].status:7} {answer.text}")
    paid_back = sum(order.refunded for order in SHOP.orders.values())
    print(f"{len(SHOP.told)} customers told, {paid_back} paid back")


if __name__ == "__main__":
    asyncio.run(main())
