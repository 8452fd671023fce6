"""What starting a run, a step and a step by itself cost in CPU, here and in another checkout.

Time on the clock depends on whatever else the machine does; CPU, of all threads and the kernel's
part included, depends on it much less. The trees take turns, each in many short processes, and the
medians are compared:

    python cpu.py                            # this tree
    python cpu.py --against ../../../before  # and another, in turn
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
CASES = {"start + 1 step": (200, 1), "step, 200 runs x 10": (200, 10), "step, 1 run": (1, 200)}


async def measure(runs: int, steps: int, times: int) -> list[float]:
    """Microseconds of CPU for each step, once for each time."""
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

    async def batch() -> None:
        handles = await asyncio.gather(*(start(sequence, steps) for _ in range(runs)))
        results = await asyncio.gather(*(handle.result() for handle in handles))
        assert results == [sum(range(steps))] * runs

    found: list[float] = []
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        async with open_engine(f"{folder}/store.db"):
            await batch()  # what is made once is made now
            for _ in range(times):
                before = time.process_time()
                await batch()
                found.append((time.process_time() - before) / runs / steps * 1e6)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="the root of another checkout")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--one", nargs=3, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(asyncio.run(measure(*given.one))))
        return
    trees = {"here": HERE.parent.parent}
    if given.against is not None:
        trees["there"] = given.against.resolve()
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(given.turns):
        for case, (runs, steps) in CASES.items():
            for name, root in trees.items():
                environment = {**os.environ, "PYTHONPATH": str(root / "src")}
                command = [sys.executable, "-P", __file__, "--one", str(runs), str(steps), "3"]
                done = subprocess.run(
                    command, env=environment, capture_output=True, text=True, check=True
                )
                found.setdefault((case, name), []).extend(json.loads(done.stdout))
    print(f"{'µs of CPU':26}" + "".join(f"{name:>12}" for name in trees))
    for case in CASES:
        medians = [statistics.median(found[case, name]) for name in trees]
        print(f"{case:26}" + "".join(f"{median:12.1f}" for median in medians))


if __name__ == "__main__":
    main()
