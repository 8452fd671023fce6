"""What a step costs on Temporal beside a plain activity, and how long a take-over takes.

    python bench/temporal.py            STEPS=30 TURNS=5

Both run on one dev server with its data in a file, in turn: a workflow of `temporalio` that awaits
STEPS activities one after another, and a workflow of ours that awaits as many steps. The figure is
the median over the turns of the time for one step, of the processor time that this process and the
server spend on it, and the ratio of the two in the same turn.

Take-over: a worker process is killed with -9 while a run waits for an event (until the event that
is sent then has been dealt with by another worker) and while it is in a step (until another has
begun it again). By settings: `sticky_seconds` 2, `heartbeat_seconds` 15.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "temporal"))
import dev_server
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

import holdfast
from holdfast import get_run, open_engine, send_event, start

STEPS = int(os.environ.get("STEPS", "30"))
TURNS = int(os.environ.get("TURNS", "5"))


@activity.defn
async def plain_add(a: int, b: int) -> int:
    return a + b


@workflow.defn(sandboxed=False)
class PlainAdds:
    @workflow.run
    async def run(self, n: int) -> int:
        total = 0
        for _ in range(n):
            total = await workflow.execute_activity(
                plain_add, args=[total, 1], start_to_close_timeout=timedelta(minutes=1)
            )
        return total


@holdfast.step
async def bench_add(a: int, b: int) -> int:
    return a + b


@holdfast.workflow
async def bench_adds(n: int) -> int:
    total = 0
    for _ in range(n):
        total = await bench_add(total, 1)
    return total


@holdfast.step
async def bench_long(begun: str) -> None:
    with Path(begun).open("a") as file:
        file.write(f"{time.time()}\n")
    if len(Path(begun).read_text().splitlines()) == 1:
        await asyncio.sleep(3600)


@holdfast.workflow
async def bench_waits(begun: str) -> None:
    await holdfast.wait_for_event("bench", timeout="1h")
    await bench_long(begun)


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Meter:
    """Seconds that pass, and that this process and the server compute."""

    def __init__(self, server: int) -> None:
        self._server = server

    async def of(self, work: Any) -> tuple[float, float, float]:
        wall, own, theirs = time.perf_counter(), time.process_time(), cpu_of(self._server)
        await work
        return (
            (time.perf_counter() - wall) / STEPS * 1000,
            (time.process_time() - own) / STEPS * 1000,
            (cpu_of(self._server) - theirs) / STEPS * 1000,
        )


async def cost(server: dev_server.DevServer) -> None:
    assert server.process is not None
    meter = Meter(server.process.pid)
    client = await Client.connect(server.host)
    folder = Path(tempfile.mkdtemp(dir=server.folder))

    async def plain(number: int) -> None:
        id = f"plain-{time.time_ns()}-{number}"
        await client.execute_workflow(PlainAdds.run, STEPS, id=id, task_queue="plain")

    async def ours() -> None:
        await (await start(bench_adds, STEPS)).result()

    queue = Worker(client, task_queue="plain", workflows=[PlainAdds], activities=[plain_add])
    async with queue, open_engine(folder / "runs.db", engine=server.url()):
        await plain(0)
        await ours()
        both = [(await meter.of(plain(i)), await meter.of(ours())) for i in range(1, TURNS + 1)]
    names = ("ms", "ms of CPU here", "ms of CPU in the server")
    print(f"a step, medians of {TURNS} turns of {STEPS} steps:")
    for place, name in enumerate(names):
        theirs = statistics.median(turn[0][place] for turn in both)
        mine = statistics.median(turn[1][place] for turn in both)
        ratio = statistics.median(turn[1][place] / max(turn[0][place], 1e-9) for turn in both)
        print(f"  {name:24} temporalio {theirs:7.1f}   holdfast {mine:7.1f}   x {ratio:.2f}")


def worker(folder: Path, address: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "holdfast.cli.main", "worker", __file__, "--quiet"]
    command += ["--store", str(folder / "runs.db"), "--engine", address]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)


async def take_over(server: dev_server.DevServer) -> None:
    folder = Path(tempfile.mkdtemp(dir=server.folder))
    address, begun = server.url(), folder / "begun"
    first = worker(folder, address)
    second: subprocess.Popen[bytes] | None = None
    try:
        async with open_engine(folder / "runs.db", worker=False):
            run = await start(bench_waits, str(begun))

            async def has(count: int, type: str) -> float:
                while True:
                    found = [e for e in await (await get_run(run.id)).events() if e.type == type]
                    if len(found) >= count:
                        return time.time()
                    await asyncio.sleep(0.05)

            await has(1, "wait.created")
            second = worker(folder, address)
            await asyncio.sleep(10)  # until it polls
            first.kill()
            killed = time.time()
            await send_event("bench")
            print(
                f"a run that waits is taken over in {await has(1, 'wait.received') - killed:.1f} s"
            )
            while not begun.exists():
                await asyncio.sleep(0.05)
            first.wait()
            first = worker(folder, address)
            await asyncio.sleep(10)
            second.kill()
            killed = time.time()
            while len(begun.read_text().splitlines()) < 2:
                await asyncio.sleep(0.05)
            again = float(begun.read_text().splitlines()[1])
            print(f"a step under way is begun again in {again - killed:.1f} s")
    finally:
        for each in (first, second):
            if each is not None:
                each.kill()
                each.wait()


async def main() -> None:
    server = await asyncio.to_thread(dev_server.shared)
    await cost(server)
    await take_over(server)


if __name__ == "__main__":
    asyncio.run(main())
