"""Workers and Temporal's server killed with -9 at random moments, while runs go on.

`make chaos-temporal` (RUNS=100, WORKERS=2) does it for long and prints what it did; a test does it
for a moment. In the end, with nothing failing any more:

- every run has ended, with the result it has when nobody is killed;
- no model call that had finished was charged for again, and no tool that must not be repeated was;
- no journal has a gap, and no step, wait or child was recorded twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))
import dev_server
import killed_flows

from holdfast import open_engine, send_event, start

CHECKS = {
    "journals with a gap": (
        "SELECT run_id, count(*), max(seq) FROM events GROUP BY run_id HAVING count(*) <> max(seq)"
    ),
    "events recorded twice": (
        "SELECT run_id, key FROM events WHERE type IN ('step.completed', 'wait.received',"
        " 'child.ended') GROUP BY run_id, key HAVING count(*) > 1"
    ),
    "finished model calls charged again": (
        "SELECT run_id, step_key FROM calls WHERE status = 'completed'"
        " GROUP BY run_id, step_key HAVING count(*) > 1"
    ),
    "runs that have not ended well": (
        "SELECT id, status, error FROM runs WHERE status <> 'completed' OR owner IS NOT NULL"
    ),
}
SETTINGS = {
    "HOLDFAST_TEMPORAL_HEARTBEAT_SECONDS": "4",
    "HOLDFAST_TEMPORAL_STICKY_SECONDS": "1",
}


@dataclass
class Outcome:
    runs: int = 0
    harmed: Counter[str] = field(default_factory=Counter[str])
    problems: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])


class Trial:
    """A server, some workers on a store beside it, and what is done to them."""

    def __init__(self, workers: int, seed: int) -> None:
        self.luck = random.Random(seed)
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-killed-"))
        self.server = dev_server.DevServer(self.folder)
        self.store = self.folder / "runs.db"
        self.outcome = Outcome()
        self._number = workers
        self._log = (self.folder / "workers.log").open("ab")
        self._workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Trial:
        self.server.start()
        self.address = self.server.url("killed")
        self._workers = [self._worker() for _ in range(self._number)]
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()
        self.server.kill()
        self._log.close()
        if not self.outcome.problems:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _worker(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "holdfast.cli.main", "worker", killed_flows.__file__]
        command += ["--quiet", "--store", str(self.store), "--engine", self.address]
        effects = {"EFFECTS_OF_CHAOS": str(self.folder / "effects")}
        environment = {**os.environ, **SETTINGS, **effects}
        return subprocess.Popen(command, cwd=self.folder, env=environment, stderr=self._log)

    def harm(self, what: str) -> None:
        """Kill the server, a worker, or both, as a power cut would; and have them back."""
        if what != "worker":
            self.server.kill()
        if what != "server":
            place = self.luck.randrange(len(self._workers))
            self._workers[place].kill()
            self._workers[place].wait()
            self._workers[place] = self._worker()
        if what != "worker":
            self.server.start()
        self.outcome.harmed[what] += 1

    def check(self, expected: dict[str, int], results: dict[str, Any]) -> None:
        """Fill in what is wrong."""
        found: dict[str, list[Any]] = {}
        with sqlite3.connect(self.store) as connection:
            for what, sql in CHECKS.items():
                found[what] = connection.execute(sql).fetchall()
        connection.close()
        found["wrong results"] = [
            (run, results[run])
            for run, number in expected.items()
            if results[run][0] != killed_flows.total_of(number)
        ]
        effects = self.folder / "effects"
        paid = Counter(effects.read_text().splitlines() if effects.exists() else [])
        found["paid twice"] = [order for order, times in paid.items() if times > 1]
        found["said to be paid, and is not"] = [
            number
            for run, number in expected.items()
            if results[run][1] == "paid" and not paid[f"order-{number}"]
        ]
        self.outcome.problems = {what: rows for what, rows in found.items() if rows}


async def drive(trial: Trial, runs: int, harms: list[str], seconds: float) -> Outcome:
    """Start runs and send their events while processes are killed; then wait for all to end."""
    expected: dict[str, int] = {}
    async with open_engine(trial.store, worker=False) as engine:

        async def start_all() -> None:
            for number in range(runs):
                run = await start(killed_flows.under_fire, number)
                expected[run.id] = number
                await send_event("fire", {"number": number})
                await asyncio.sleep(trial.luck.uniform(0, 2 * seconds / runs))

        starting = asyncio.create_task(start_all())
        for what in harms:
            seen = await engine.store.log_end()
            async with asyncio.timeout(240):  # something has come of the last ones
                while await engine.store.log_end() < seen + 5:
                    await asyncio.sleep(0.05)
            await asyncio.sleep(trial.luck.uniform(0, 2 * seconds / len(harms)))
            await asyncio.to_thread(trial.harm, what)
        await starting
        results: dict[str, Any] = {}
        for run_id in expected:
            handle = engine.store
            async with asyncio.timeout(240):
                while True:
                    found = await handle.get(run_id)
                    if found is not None and found.ended:
                        break
                    await asyncio.sleep(0.1)
            last = await handle.last_event(run_id)
            results[run_id] = json.loads(last.value or b'[null, ""]')
    trial.check(expected, results)
    trial.outcome.runs = runs
    return trial.outcome


def main() -> int:
    runs = int(os.environ.get("RUNS", "100"))
    workers = int(os.environ.get("WORKERS", "2"))
    seed = int(os.environ.get("SEED", str(random.randrange(10**6))))
    seconds = float(os.environ.get("SECONDS_OF_CHAOS", str(runs * 3)))
    kinds = ["worker", "server", "both"]
    harms = (kinds * (1 + int(seconds / 8 / 3)))[: max(3, int(seconds / 8))]
    random.Random(seed).shuffle(harms)
    print(f"{runs} runs on {workers} workers, {len(harms)} kills, seed {seed}", flush=True)
    began = time.monotonic()
    with Trial(workers, seed) as trial:
        outcome = asyncio.run(drive(trial, runs, harms, seconds))
        killed = ", ".join(f"{n} × {what}" for what, n in sorted(outcome.harmed.items()))
        print(f"{killed}; {outcome.runs} runs ended in {time.monotonic() - began:.0f} s")
        for what, rows in outcome.problems.items():
            print(f"{what}: {rows[:10]}  ({trial.folder})")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
