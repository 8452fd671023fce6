"""A run that never ends: now and then it goes on as a new one, with an empty journal.

It prints:

    3 runs in the chain
    total 60
"""

import asyncio

from holdfast import continue_as_new, list_runs, start, step, workflow
from holdfast.testing import Harness


@step
async def read_meter(hour: int) -> int:
    return hour % 3 * 10


@workflow
async def meter(hour: int = 0, total: int = 0) -> int:
    for _ in range(2):  # a real one: some thousand steps
        total += await read_meter(hour)
        hour += 1
    if hour < 6:  # a real one: for ever
        continue_as_new(hour, total)
    return total


async def main() -> None:
    async with Harness():
        run = await start(meter)
        total = await run.result()  # of the last in the chain
        page = await list_runs(workflow="meter")
        print(len(page.runs), "runs in the chain")
        print("total", total)


if __name__ == "__main__":
    asyncio.run(main())
