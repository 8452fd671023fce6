"""Holdfast: no-op steps in durable runs."""

import asyncio
import sys
import time

from measure import report

from holdfast import open_engine, start, step, workflow


@step
async def nothing(number: int) -> int:
    return number


@workflow
async def sequence(steps: int) -> int:
    total = 0
    for number in range(steps):
        total += await nothing(number)
    return total


async def main(folder: str, runs: int, steps: int) -> None:
    async with open_engine(f"{folder}/holdfast.db"):
        await (await start(sequence, 3)).result()
        began = time.perf_counter()
        handles = await asyncio.gather(*(start(sequence, steps) for _ in range(runs)))
        results = await asyncio.gather(*(handle.result() for handle in handles))
        seconds = time.perf_counter() - began
        assert results == [sum(range(steps))] * runs
    report(seconds, runs * steps)


asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
