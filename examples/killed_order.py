"""The demo: an order whose worker is killed with -9, twice, and which is fulfilled all the same.

The workflow is in order.py. This file plays the world around it: it starts workers as processes
of their own, kills them, approves the order, and then compares what the journal says with what
the steps really did (they keep a log of their own).
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from order import Order, Shipment, fulfil

from holdfast import RunHandle, open_engine, send_event, start
from holdfast.records import Step

ROOT = Path(__file__).parent.parent
STORE = Path(os.environ.get("DEMO_STORE", ROOT / ".holdfast" / "demo.db"))
BESIDE_PYTHON = Path(sys.executable).with_name("holdfast")
WIDTH = 32


async def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        for file in STORE.parent.glob(f"{STORE.name}*"):
            file.unlink()  # the last demo's
        try:
            async with open_engine(STORE, worker=False):
                await fulfil_an_order(log)
        finally:
            Worker.stop_all()
        return judge(log)


async def fulfil_an_order(log: Path) -> None:
    number = f"A-{int(time.time()) % 100_000}"
    say(f"An order ({number}) is fulfilled by a worker that gets killed twice.\n")
    run = await start(fulfil, Order(id=number, item="lamp"))
    follower = Follower(run)

    worker = Worker(log)
    await follower.follow(lambda _: "begin pack" in lines(log))
    await asyncio.sleep(0.2)
    worker.kill("in the middle of packing")

    worker = Worker(log)
    await follower.follow(lambda steps: any(step.kind == "wait" for step in steps))
    worker.kill("while the order waits for approval")

    command("holdfast events send approval", "nobody is there to hear it")
    await send_event("approval", {"order": number, "by": "you"})

    Worker(log)
    shipment = await run.result()
    await follower.follow(lambda _: True)

    say(f"\n   {run.id} completed: {shipment.note}, {shipment.tracking}\n")
    draw(await run.steps())


class Worker:
    """`holdfast worker examples/order.py`, as a process that can be killed."""

    started: ClassVar[list[subprocess.Popen[bytes]]] = []

    def __init__(self, log: Path) -> None:
        workflows = str(ROOT / "examples" / "order.py")
        worker = [sys.executable, "-m", "holdfast.cli.main", "worker", workflows]
        self._process = subprocess.Popen(
            [*worker, "--store", str(STORE)],
            stderr=subprocess.DEVNULL,
            env={**os.environ, "ORDER_LOG": str(log)},
        )
        self.started.append(self._process)
        command("holdfast worker examples/order.py", f"pid {self._process.pid}")

    def kill(self, when: str) -> None:
        command(f"kill -9 {self._process.pid}", when)
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    @classmethod
    def stop_all(cls) -> None:
        for process in cls.started:
            process.terminate()
            process.wait()


class Follower:
    """Prints a run's steps as they finish."""

    def __init__(self, run: RunHandle[Shipment]) -> None:
        self._run = run
        self._told: set[str] = set()

    async def follow(self, until: Callable[[list[Step]], bool]) -> None:
        happened = False
        while not happened:
            await asyncio.sleep(0.02)
            steps = await self._run.steps()
            happened = until(steps)
            for step in steps:
                if step.seconds is not None and step.key not in self._told:
                    self._told.add(step.key)
                    text = (step.output or b"").decode()
                    say(f"   ✓ {step.name:<12} {step.seconds:4.1f} s  {text}")


def draw(steps: list[Step]) -> None:
    """The run's timeline, from its journal."""
    first = min(step.started_at for step in steps)
    last = max(step.ended_at or first for step in steps)
    for step in steps:
        seconds = step.seconds or 0.0
        begin = int((step.started_at - first) / (last - first) * WIDTH)
        length = max(int(seconds / (last - first) * WIDTH), 1)
        bar = ("░" if step.kind == "wait" else "▇") * length
        say(f"   {step.name:<12} {' ' * begin}{bar:<{WIDTH - begin}} {seconds:5.1f} s")


def judge(log: Path) -> int:
    """Compare what was done with what should have been: each step finished exactly once."""
    done = Counter(lines(log))
    names = sorted({line.split()[1] for line in done})
    doubled = [name for name in names if done[f"end {name}"] != 1]
    again = [name for name in names if done[f"begin {name}"] > 1]
    say(f"\n   By the steps' own log: {len(names)} steps done, {len(doubled)} of them twice.")
    if again:
        say(f"   Begun again: {', '.join(again)}, which was under way when its worker was killed.")
    holdfast = "holdfast" if shutil.which("holdfast") else os.path.relpath(BESIDE_PYTHON)
    say(f"\nSee it:   {holdfast} runs list --store {os.path.relpath(STORE)}")
    say("Read on:  docs/guides/getting-started.md")
    return 1 if doubled else 0


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def command(text: str, remark: str) -> None:
    say(f"$ {text:<36} # {remark}")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
