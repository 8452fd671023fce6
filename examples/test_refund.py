"""Test your own workflows: a day passes at once, steps fail and workers die on demand.

pytest examples/test_refund.py
"""

import asyncio

from holdfast import send_event, start, step, wait_for_event, workflow
from holdfast.testing import Harness


@step(retries=3)
async def pay_back(order: int) -> str:
    return f"order {order} paid back"


@workflow
async def refund(order: int) -> str:
    reply = await wait_for_event("approval", match={"order": order}, timeout="24h")
    return await pay_back(order) if reply else "nobody answered"


def test_nobody_answers_for_a_day() -> None:
    async def scenario() -> None:
        async with Harness():
            run = await start(refund, 7)
            assert await run.result() == "nobody answered"

    asyncio.run(scenario())


def test_the_worker_dies_while_it_waits() -> None:
    async def scenario() -> None:
        async with Harness() as harness:
            run = await start(refund, 7)
            await harness.skip("12h")
            await harness.crash()
            await send_event("approval", {"order": 7})
            assert await run.result() == "order 7 paid back"

    asyncio.run(scenario())


def test_the_bank_is_out_of_reach_twice() -> None:
    async def scenario() -> None:
        async with Harness() as harness:
            harness.fail(pay_back, ConnectionError("down"), ConnectionError("still down"))
            run = await start(refund, 7)
            await send_event("approval", {"order": 7})
            assert await run.result() == "order 7 paid back"
            assert harness.calls["pay_back"] == 3

    asyncio.run(scenario())
