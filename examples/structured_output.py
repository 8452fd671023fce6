"""A model's answer as a typed value, checked; a wrong one is handed back to the model.

It prints:

    Invoice(number='2026-117', total=Decimal('94.50'), paid=False)
    calls: 2
"""

import asyncio
from dataclasses import dataclass
from decimal import Decimal

from holdfast import generate_object
from holdfast.gateway import ScriptedModel

TEXT = "Invoice 2026-117 over EUR 94.50, due in 30 days."


@dataclass
class Invoice:
    number: str
    total: Decimal
    paid: bool


# The script stands for a model that first gets a type wrong. With a key, any model will do:
# generate_object("anthropic/claude-sonnet-4.6", schema=Invoice, prompt=…).
SCRIPT = [
    '{"number": "2026-117", "total": "a lot", "paid": false}',
    '{"number": "2026-117", "total": "94.50", "paid": false}',
]


async def main() -> None:
    with ScriptedModel("clerk", SCRIPT) as model:
        reply = await generate_object("scripted/clerk", schema=Invoice, prompt=f"Read this: {TEXT}")
        print(reply.object)
        print("calls:", len(model.requests))


if __name__ == "__main__":
    asyncio.run(main())
