"""How Holdfast scales: long histories, many sleepers, idle workers, quick starts."""

import asyncio
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from holdfast import Engine, Settings, list_runs, now, open_engine, sleep, start, step, workflow

HERE = Path(__file__).parent
SLEEPERS = 100_000
STEPS = 10_000

moments: list[float] = []


@step
async def nothing(number: int) -> int:
    moments.append(time.perf_counter())
    return number


@workflow
async def sequence(steps: int) -> int:
    total = 0
    for number in range(steps):
        total += await nothing(number)
    await sleep("1d")
    return total


@step
async def lag(due: float) -> None:
    lags.append(time.time() - due)


lags: list[float] = []


@workflow
async def sleeper(seconds: float) -> None:
    due = now().timestamp() + seconds
    await sleep(seconds)
    await lag(due)


def megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


async def until_waiting(engine: Engine) -> None:
    """Wait until every run has left memory."""
    while engine.runs:
        await asyncio.sleep(0.02)


async def long_history(folder: str) -> dict[str, float]:
    """The cost of the 10,000th step against the 10th, and of resuming behind it."""
    path = f"{folder}/long.db"
    settings = Settings(idle_seconds=0.1)
    async with open_engine(path, settings=settings) as engine:
        await start(sequence, STEPS)
        while len(moments) < STEPS:
            await asyncio.sleep(0.05)
        await until_waiting(engine)
    gaps = [b - a for a, b in itertools.pairwise(moments)]
    early, late = statistics.median(gaps[5:505]), statistics.median(gaps[-500:])
    async with open_engine(path, settings=settings) as engine:
        run = (await list_runs()).runs[0]
        began = time.perf_counter()
        journal = await engine.store.load(run.id)
        from holdfast.runtime.replay import Execution

        Execution(sequence, journal, journal[0].at).replay()
        resumed = time.perf_counter() - began
    return {
        "microseconds_of_step_10": early * 1e6,
        "microseconds_of_step_10000": late * 1e6,
        "growth": late / early,
        "seconds_to_resume_10000_steps": resumed,
    }


async def sleepers(folder: str) -> dict[str, float]:
    """Many sleeping runs: what they cost in memory and at start-up, and how late they wake."""
    path = f"{folder}/sleepers.db"
    async with open_engine(path, settings=Settings(idle_seconds=0.05)) as engine:
        before = megabytes()
        for begin in range(0, SLEEPERS, 500):
            await asyncio.gather(
                *(start(sleeper, 86400.0 + number) for number in range(begin, begin + 500))
            )
            await until_waiting(engine)
        grown = megabytes() - before
        size = Path(path).stat().st_size / 1e6
    began = time.perf_counter()
    async with open_engine(path) as engine:
        await (await start(sleeper, 0.0)).result()
        startup = time.perf_counter() - began
        lags.clear()
        # 2,000 more wake within ten seconds, among the 100,000 that sleep on.
        runs = [await start(sleeper, 3 + number / 200) for number in range(2000)]
        await asyncio.gather(*(run.result() for run in runs))
    return {
        "sleeping_runs": SLEEPERS,
        "kilobytes_of_memory_each": grown * 1e3 / SLEEPERS,
        "kilobytes_on_disk_each": size * 1e3 / SLEEPERS,
        "seconds_to_first_result": startup,
        "seconds_of_lag_p50": statistics.median(lags),
        "seconds_of_lag_p99": sorted(lags)[int(len(lags) * 0.99)],
    }


async def idle(folder: str) -> dict[str, float]:
    """What a worker with nothing to do costs."""
    async with open_engine(f"{folder}/idle.db"):
        await asyncio.sleep(1)
        before, began = time.process_time(), time.perf_counter()
        await asyncio.sleep(10)
        used = time.process_time() - before
        return {"percent_of_a_core": used / (time.perf_counter() - began) * 100}


def quick_start(folder: str) -> dict[str, float]:
    """From the start of a process to the first result of a run, and the memory at its end."""
    took: list[float] = []
    peak: list[float] = []
    for turn in range(7):
        began = time.perf_counter()
        command = [sys.executable, str(HERE / "first_result.py"), f"{folder}/first{turn}.db"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        took.append(time.perf_counter() - began)
        peak.append(float(done.stdout))
    return {"seconds": statistics.median(took), "megabytes": statistics.median(peak)}


def main() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        results: dict[str, Any] = {
            "start to first result": quick_start(folder),
            "idle worker": asyncio.run(idle(folder)),
            "long history": asyncio.run(long_history(folder)),
            "sleeping runs": asyncio.run(sleepers(folder)),
        }
    for title, numbers in results.items():
        print(f"\n{title}")
        for name, value in numbers.items():
            print(f"  {name.replace('_', ' '):40}{value:14,.3f}")
    return results


if __name__ == "__main__":
    found = main()
    target = HERE.parent / "results" / "runtime-scale.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(found, indent=2))
    print(f"\n{os.path.relpath(target)}")
