"""A whole program: open a store, run one step, print the memory it took."""

import asyncio
import resource
import sys

from holdfast import open_engine, start, step, workflow


@step
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@workflow
async def hello(name: str) -> str:
    return await greet(name)


async def main() -> None:
    async with open_engine(sys.argv[1]):
        assert await (await start(hello, "you")).result() == "Hello, you!"


asyncio.run(main())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
