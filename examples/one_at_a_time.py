"""One run per customer at a time, five customers at once; and one run per key, ever.

It prints:

    acme: 1, 2, 3
    never two of a customer at once: True
    started twice, one run: True
"""

import asyncio

from holdfast import Concurrency, sleep, start, step, workflow
from holdfast.testing import Harness

order: list[int] = []
under_way = 0
most = 0


@step
async def begin(number: int) -> None:
    global under_way, most
    order.append(number)
    under_way += 1
    most = max(most, under_way)


@step
async def end() -> None:
    global under_way
    under_way -= 1


@workflow(concurrency=Concurrency(limit=5, key="customer", per_key=1))
async def sync(customer: str, number: int) -> None:
    await begin(number)
    await sleep("10m")
    await end()


async def main() -> None:
    async with Harness():
        runs = [await start(sync, "acme", number) for number in (1, 2, 3)]
        for run in runs:
            await run.result()
        print("acme:", ", ".join(map(str, order)))
        print("never two of a customer at once:", most == 1)

        once = sync.options(key="zenith-2026-11-17")
        first, second = await asyncio.gather(start(once, "zenith", 4), start(once, "zenith", 4))
        print("started twice, one run:", first.id == second.id)
        await first.result()


if __name__ == "__main__":
    asyncio.run(main())
