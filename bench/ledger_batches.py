"""Model calls on PostgreSQL: how many a second, looked up and written together or one by one.

    python bench/ledger_batches.py POSTGRESQL_URL

Two hundred calls at once begin and end, three scopes each, in turn with and without batches.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import sys
import time
from typing import Any

from holdfast.ids import new_id
from holdfast.records.calls import CallEnd, CallStart
from holdfast.store import opener
from holdfast.store.sqlite import ledger_batch

CALLS, ROUNDS = 200, 5


async def calls(ledger: Any) -> None:
    async def one(number: int) -> None:
        start = CallStart(new_id("call"), "p/m", "chat", time.time(), key=os.urandom(8).hex())
        scopes = [f"run:{number}", "workflow:w", "all"]
        await ledger.begin(start, scopes=scopes, usd=10, tokens=5)
        await ledger.finish(start.id, CallEnd("completed", time.time(), charge=3, charge_tokens=2))

    await asyncio.gather(*(one(number) for number in range(CALLS)))


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def main(url: str) -> None:
    ledger = opener.ledger(url)
    own = ledger_batch.begin, ledger_batch.finish
    found: dict[str, list[tuple[float, float]]] = {"one by one": [], "in batches": []}
    for _ in range(ROUNDS):
        for name, turns in found.items():
            batched = name == "in batches"
            ledger_batch.begin = own[0] if batched else lambda *_: False
            ledger_batch.finish = own[1] if batched else lambda *_: False
            began, used = time.perf_counter(), cpu()
            await calls(ledger)
            turns.append((CALLS / (time.perf_counter() - began), (cpu() - used) / CALLS * 1e3))
    ledger.close()
    for name, turns in found.items():
        rate, used = (statistics.median(column) for column in zip(*turns, strict=True))
        print(f"{name}: {rate:,.0f} calls/s, {used:.2f} ms of CPU a call")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
