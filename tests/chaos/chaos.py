"""Workers on PostgreSQL while everything fails: `make chaos` (SECONDS=600, WORKERS=3).

A server and some workers of its own. Again and again a worker is killed with -9, or stopped past
its lease and let go on, or the database is stopped at once and started again. Meanwhile runs are
started that have steps, children, waits and sleeps, and events are sent for them. In the end, with
nothing failing any more:

- every run that was acknowledged is there, and has ended with the right result;
- no journal has a gap, and no step or message was recorded twice;
- no run has an owner, and the counts of runs are those of the runs.

It prints what it did, and exits with 1 if anything is not so.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
import psycopg

import postgres_server
from chaos import flows  # the package: this file's folder
from holdfast import open_engine, send_event, start
from holdfast.store.postgres.url import PostgresUrl

LEASE = 4.0
FLOWS = Path(__file__).with_name("flows.py")
CHECKS = {
    "journals with a gap": (
        "SELECT run_id, count(*), max(seq) FROM events GROUP BY run_id HAVING count(*) <> max(seq)"
    ),
    "steps recorded twice": (
        "SELECT run_id, key FROM events WHERE type IN ('step.completed', 'wait.received',"
        " 'child.ended') GROUP BY run_id, key HAVING count(*) > 1"
    ),
    "messages taken twice": (
        "SELECT run_id, meta::json ->> 'message' FROM events WHERE type = 'wait.received'"
        " AND meta::json ->> 'message' IS NOT NULL GROUP BY 1, 2 HAVING count(*) > 1"
    ),
    "runs that have not ended well": (
        "SELECT id, status, error FROM runs WHERE status <> 'completed' OR owner IS NOT NULL"
    ),
    "counts that are wrong": (
        "SELECT workflow, status, runs FROM run_counts EXCEPT"
        " SELECT workflow, status, count(*) FROM runs GROUP BY 1, 2"
    ),
    "places in the log that are not unique": (
        "SELECT log FROM events GROUP BY log HAVING count(*) > 1"
    ),
}


class Chaos:
    """The server, the workers, and what is done to them."""

    def __init__(self, workers: int, seed: int) -> None:
        self.luck = random.Random(seed)
        self.folder = postgres_server.short_folder()
        settings = {"fsync": "on", "full_page_writes": "on"}
        self.server = postgres_server.Server(self.folder, settings)
        self.url = self.server.url("chaos")
        self.done: dict[str, int] = {}
        self.workers: list[subprocess.Popen[bytes]] = []
        self._number = workers

    def __enter__(self) -> Chaos:
        self.server.make()
        self.server.start()
        (self.folder.parent / "holdfast.toml").write_text(
            f"[runtime]\nlease_seconds = {LEASE}\nidle_seconds = 0.2\n"
        )
        self.workers = [self._worker() for _ in range(self._number)]
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self.server.stop()
        postgres_server.remove(self.folder)

    def _worker(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "holdfast.cli.main", "worker", str(FLOWS), "--quiet"]
        environment = {**os.environ, "HOLDFAST_STORE": self.url}
        return subprocess.Popen(
            command, cwd=self.folder.parent, env=environment, stderr=subprocess.DEVNULL
        )

    async def harm(self) -> None:
        """Do one thing of those that happen."""
        what = self.luck.choice(["kill", "kill", "kill", "stop", "stop", "database"])
        place = self.luck.randrange(len(self.workers))
        worker = self.workers[place]
        if what == "kill":
            worker.kill()
            worker.wait()
            self.workers[place] = self._worker()
        elif what == "stop":
            worker.send_signal(signal.SIGSTOP)
            await asyncio.sleep(LEASE + 2)
            worker.send_signal(signal.SIGCONT)
        else:
            await asyncio.to_thread(self.server.stop)
            await asyncio.sleep(self.luck.random())
            await asyncio.to_thread(self.server.start)
        self.done[what] = self.done.get(what, 0) + 1


async def drive(chaos: Chaos, seconds: float) -> dict[str, int]:
    """Start runs and send their events while things are harmed; then wait for all to end."""
    expected: dict[str, int] = {}
    begun = asyncio.Event()

    async def harming() -> None:
        await begun.wait()
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            await asyncio.sleep(chaos.luck.uniform(1, 3))
            await chaos.harm()

    harm = asyncio.create_task(harming())
    async with open_engine(chaos.url, worker=False) as engine:
        number = 0
        while not harm.done():
            number += 1
            run = await start(flows.mixed.options(key=str(number)), number)
            expected[run.id] = flows.result_of(number)
            await send_event("go", {"number": number}, id=f"go-{number}")
            if number == 10:
                begun.set()
            await asyncio.sleep(0.05)
        await harm
        last = time.monotonic() + 300
        while time.monotonic() < last:
            ended = [run for run in expected if (await engine.store.get(run)).ended]  # type: ignore[union-attr]
            if len(ended) == len(expected):
                break
            await asyncio.sleep(0.5)
        wrong = 0
        for run, result in expected.items():
            value = (await engine.store.last_event(run)).value or b"null"
            wrong += json.loads(value) != result
    return {"runs": len(expected), "wrong results": wrong}


def checked(url: str) -> dict[str, list[Any]]:
    known = PostgresUrl.parse(url)
    with psycopg.connect(known.conninfo) as connection:
        connection.execute(f"SET search_path = {known.schema}".encode())
        return {what: connection.execute(sql.encode()).fetchall() for what, sql in CHECKS.items()}


def main() -> int:
    seconds = float(os.environ.get("SECONDS_OF_CHAOS", "600"))
    workers = int(os.environ.get("WORKERS", "3"))
    seed = int(os.environ.get("SEED", str(random.randrange(10**6))))
    print(f"{workers} workers for {seconds:g} s, seed {seed}")
    with Chaos(workers, seed) as chaos:
        found = asyncio.run(drive(chaos, seconds))
        problems = {what: rows for what, rows in checked(chaos.url).items() if rows}
    print(", ".join(f"{number} × {what}" for what, number in sorted(chaos.done.items())))
    print(", ".join(f"{number} {what}" for what, number in found.items()))
    for what, rows in problems.items():
        print(f"{what}: {rows[:10]}")
    return 1 if problems or found["wrong results"] or not chaos.done else 0


if __name__ == "__main__":
    sys.exit(main())
