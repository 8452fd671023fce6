"""How long a call's records wait while journals are written: the store's writer, shared.

Some runs append to their journals as fast as the store takes it; at the same time callers begin and
finish model calls, as the gateway does for calls under a limit. Reported is how long a `begin` or a
`finish` takes, and how many of each get through.

    python bench/call_records.py --seconds 5 --runs 40 --callers 8
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.ids import new_id
from holdfast.records import Event, Worker
from holdfast.records.calls import CallEnd, CallStart, SpendLimit
from holdfast.store.base import Append, NewRun
from holdfast.store.sqlite.ledger import SqliteLedger
from holdfast.store.sqlite.store import SqliteStore

WAL_BYTES = 400


async def journal(store: SqliteStore, worker: Worker, until: float) -> int:
    """One run that appends an event, waits for the disk, and appends the next."""
    now = time.time()
    new = NewRun(new_id("run"), "flow", "1", b"{}", {"seed": "s"}, now, now)
    created = await store.create(new, worker)
    assert created.claim is not None
    seq, loop = 1, asyncio.get_running_loop()
    while time.perf_counter() < until:
        seq += 1
        written: asyncio.Future[None] = loop.create_future()

        def done(
            _: Append, error: HoldfastError | None, written: asyncio.Future[None] = written
        ) -> None:
            if error is None:
                written.set_result(None)
            else:
                written.set_exception(error)

        event = Event(
            new.id, seq, "step.started", f"0/{seq}", time.time(), '{"name":"s"}', b"x" * WAL_BYTES
        )
        store.append(Append(new.id, created.claim.fence, [event], done))
        await written
    return seq


async def calls(ledger: SqliteLedger, name: str, until: float, took: list[float]) -> None:
    """One caller: begin a call, end it, begin the next."""
    number = 0
    while time.perf_counter() < until:
        number += 1
        start = CallStart(
            id=f"call_{name}_{number}", model="m", format="chat", started_at=time.time()
        )
        begun = time.perf_counter()
        await ledger.begin(start, scopes=["run:r"], usd=1, tokens=1)
        middle = time.perf_counter()
        end = CallEnd(status="completed", finished_at=time.time(), charge=1, charge_tokens=1)
        await ledger.finish(start.id, end)
        took += [middle - begun, time.perf_counter() - middle]


async def measure(seconds: float, runs: int, callers: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        store = SqliteStore(path, "wkr_bench")
        await store.open()
        ledger = SqliteLedger(path)
        await ledger.set_limit(SpendLimit("run:r", usd=10**15))
        now = time.time()
        worker = Worker("wkr_bench", 1, "bench", now, now + 600, 0, 600.0)
        await store.renew(worker)
        until = time.perf_counter() + seconds
        took: list[float] = []
        cpu = time.process_time()
        appended = await asyncio.gather(
            *(journal(store, worker, until) for _ in range(runs)),
            *(calls(ledger, str(n), until, took) for n in range(callers)),
        )
        cpu = time.process_time() - cpu
        ledger.close()
        await store.close()
    took.sort()
    events = sum(found for found in appended if found is not None)
    return {
        "events/s": round(events / seconds, 1),
        "records/s": round(len(took) / seconds, 1),
        "p50 ms": round(statistics.median(took) * 1000, 1),
        "p99 ms": round(took[int(len(took) * 0.99)] * 1000, 1),
        "max ms": round(took[-1] * 1000, 1),
        "cpu us/write": round(cpu * 1e6 / (events + len(took)), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--callers", type=int, default=8)
    given = parser.parse_args()
    print(json.dumps(asyncio.run(measure(given.seconds, given.runs, given.callers))))


if __name__ == "__main__":
    main()
