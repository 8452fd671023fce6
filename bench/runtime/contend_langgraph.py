"""LangGraph's functional API with its SQLite saver: the same runs, each task checkpointed."""

import asyncio
import sys
import time

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.func import entrypoint, task
from measure import report


@task
async def nothing(number: int) -> int:
    return number


async def main(folder: str, runs: int, steps: int) -> None:
    async with AsyncSqliteSaver.from_conn_string(f"{folder}/langgraph.db") as saver:
        await saver.conn.execute("PRAGMA journal_mode = WAL")
        await saver.conn.execute("PRAGMA synchronous = FULL")

        @entrypoint(checkpointer=saver)
        async def sequence(steps: int) -> int:
            total = 0
            for number in range(steps):
                total += await nothing(number)
            return total

        async def run(name: str, count: int) -> int:
            config = {"configurable": {"thread_id": name}}
            return await sequence.ainvoke(count, config, durability="sync")

        await run("warm", 3)
        began = time.perf_counter()
        results = await asyncio.gather(*(run(str(n), steps) for n in range(runs)))
        seconds = time.perf_counter() - began
        assert results == [sum(range(steps))] * runs
    report(seconds, runs * steps)


asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
