"""Sleep for days at the cost of a row: a worker may die and be replaced meanwhile.

It prints:

    day 0: welcome
    the worker is killed
    day 3: how is it going?
    day 10: still with us?
"""

import asyncio

from holdfast import now, sleep, start, step, workflow
from holdfast.testing import Harness


@step
async def mail(day: int, text: str) -> None:
    print(f"day {day}: {text}")


@workflow
async def onboard(customer: str) -> None:
    began = now()  # the time on record: the same after every replay
    await mail(0, "welcome")
    await sleep("3d")
    await mail((now() - began).days, "how is it going?")
    await sleep("7d")
    await mail((now() - began).days, "still with us?")


async def main() -> None:
    async with Harness() as harness:
        run = await start(onboard, "ada")
        await harness.skip("1d")
        print("the worker is killed")
        await harness.crash()
        await run.result()


if __name__ == "__main__":
    asyncio.run(main())
