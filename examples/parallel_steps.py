"""Steps at the same time: plain asyncio, and each result is on record by itself.

It prints:

    Oslo 4°, Lima 19°, Pune 31°
    fetched: Lima, Oslo, Pune, each once
"""

import asyncio

from holdfast import start, step, workflow
from holdfast.testing import Harness

FORECAST = {"Oslo": 4, "Lima": 19, "Pune": 31}
fetched: list[str] = []


@step(timeout="10s")
async def fetch(city: str) -> int:
    fetched.append(city)
    return FORECAST[city]


@workflow
async def report(cities: list[str]) -> str:
    degrees = await asyncio.gather(*(fetch(city) for city in cities))
    return ", ".join(f"{city} {degree}°" for city, degree in zip(cities, degrees, strict=True))


async def main() -> None:
    # A harness is a store in memory and a worker, with virtual time. `start` alone uses the
    # store in .holdfast, as `holdfast run examples/parallel_steps.py:report` does.
    async with Harness():
        run = await start(report, list(FORECAST))
        print(await run.result())
    print(f"fetched: {', '.join(sorted(fetched))}, each once")


if __name__ == "__main__":
    asyncio.run(main())
