"""A worker whose workflow fires every second; ends when its input does."""

from __future__ import annotations

import asyncio
import sys

from holdfast import every, open_engine, workflow


@workflow(name="beat", schedule=every("1s", overlap="allow", catch_up="all"))
async def beat() -> None: ...


async def main() -> None:
    async with open_engine(sys.argv[1]):
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
