"""A process that makes many calls at once against a budget: `python budget_worker.py URL N`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from holdfast.errors import BudgetExceeded
from holdfast.gateway.calls import default_gateway, generate_text, use_gateway
from holdfast.gateway.config import GatewayConfig
from holdfast.gateway.gateway import Gateway
from holdfast.session import Caller, CurrentStep, set_caller


async def main(url: str, number: int) -> None:
    config: dict[str, Any] = {
        "providers": {"fake": {"base_url": url}},
        "prices": {"fake/*": {"input": 0, "output": 1000}},
        "budgets": [{"per": "run", "usd": 2}],
    }
    use_gateway(Gateway(GatewayConfig.from_dict(config)))
    done = refused = 0

    async def one(n: int) -> None:
        nonlocal done, refused
        set_caller(Caller(step=CurrentStep("run_1", "w", "s", f"0/{n}", 1, f"{os.getpid()}-{n}")))
        try:
            # 100 tokens at $1000 a million: $0.10 each, so that $2 has room for 20.
            await generate_text("fake/m", prompt=f"hi {n}", max_tokens=100)
            done += 1
        except BudgetExceeded:
            refused += 1

    await asyncio.gather(*(one(n) for n in range(number)))
    await default_gateway().close()
    print(json.dumps({"done": done, "refused": refused}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
