"""A hard budget: the call that could pass it is not made.

It prints:

    call 1: $0.0066
    call 2: $0.0066
    call 3 was refused: day:… may spend $0.02: $0.0132 is spent, …
"""

from __future__ import annotations

import asyncio

from holdfast.errors import BudgetExceeded
from holdfast.gateway import Gateway, GatewayConfig, generate_text
from holdfast.store import opener

CONFIG = {
    "budgets": [{"per": "day", "usd": "0.02"}],
    "prices": {"scripted/*": {"input": 1, "output": 10}},  # as if it cost something
}


async def main() -> None:
    gateway = Gateway(GatewayConfig.from_dict(CONFIG), ledger=opener.ledger(":memory:"))
    for number in range(1, 100):
        try:
            reply = await generate_text(
                "scripted/echo", prompt="words " * 400, max_tokens=700, gateway=gateway
            )
        except BudgetExceeded as error:
            print(f"call {number} was refused: {error.message}")
            break
        print(f"call {number}: ${reply.cost}")
    await gateway.close()


asyncio.run(main())
