"""DBOS on SQLite: the same runs."""

import asyncio
import logging
import sys
import time

from dbos import DBOS
from measure import report

folder, runs, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
logging.disable(logging.CRITICAL)
DBOS(
    config={
        "name": "bench",
        "system_database_url": f"sqlite:///{folder}/dbos.sqlite",
        "run_admin_server": False,
        "log_level": "CRITICAL",
    }
)


@DBOS.step()
async def nothing(number: int) -> int:
    return number


@DBOS.workflow()
async def sequence(steps: int) -> int:
    total = 0
    for number in range(steps):
        total += await nothing(number)
    return total


async def main() -> None:
    DBOS.launch()
    await sequence(3)
    began = time.perf_counter()
    handles = await asyncio.gather(
        *(DBOS.start_workflow_async(sequence, steps) for _ in range(runs))
    )
    results = await asyncio.gather(*(handle.get_result() for handle in handles))
    seconds = time.perf_counter() - began
    assert results == [sum(range(steps))] * runs
    report(seconds, runs * steps)
    DBOS.destroy()


asyncio.run(main())
