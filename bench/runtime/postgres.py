"""Holdfast on PostgreSQL, on a server of its own with fsync: beside DBOS, and with many workers.

    python bench/runtime/postgres.py [peers] [workers] [takeover] [sleeping]

- peers: 200 runs of 10 no-op steps in turn with DBOS (of .bench-venv): steps a second, client CPU;
- workers: 1 and 4 worker processes, steps of 50 ms, each process with room for 4 runs;
- takeover: from a kill -9 of the owner to the next event of its run, with a lease of 5 s;
- sleeping: 100,000 runs that wait, then the time of pages and of a claim among them.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
PEERS = Path(os.environ.get("PEERS_PYTHON", ROOT / ".bench-venv" / "bin" / "python"))
ROUNDS, RUNS, STEPS = 3, 200, 10
LEASE = 5
SLEEPING = int(os.environ.get("SLEEPING_RUNS", "100000"))

DONE = "SELECT count(*) FROM runs WHERE status = 'completed'"
OWNER = "SELECT w.pid FROM workers w JOIN runs r ON r.owner = w.id"
FLOWS = """
import asyncio
from holdfast import sleep, step, workflow

@step
async def fifty(number: int) -> int:
    await asyncio.sleep(0.05)
    return number

@workflow
async def five(number: int) -> int:
    return sum([await fifty(place) for place in range(5)])

@workflow
async def long(number: int) -> int:
    return sum([await fifty(place) for place in range(10_000)])

@workflow
async def later(number: int) -> int:
    await sleep("30d")
    return number
"""


# --- in a process of a contender's own ---


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def tell(seconds: float, used: float) -> None:
    steps = RUNS * STEPS
    print(json.dumps({"steps/s": steps / seconds, "ms of CPU a step": used / steps * 1e3}))


async def holdfast_contends(url: str) -> None:
    from holdfast import open_engine, start, step, workflow

    @step
    async def nothing(number: int) -> int:
        return number

    @workflow
    async def sequence(steps: int) -> int:
        return sum([await nothing(number) for number in range(steps)])

    async with open_engine(url):
        await (await start(sequence, 3)).result()
        began, used = time.perf_counter(), cpu()
        handles = await asyncio.gather(*(start(sequence, STEPS) for _ in range(RUNS)))
        results = await asyncio.gather(*(handle.result() for handle in handles))
        tell(time.perf_counter() - began, cpu() - used)
        assert results == [sum(range(STEPS))] * RUNS


async def dbos_contends(url: str) -> None:
    import logging

    from dbos import DBOS

    logging.disable(logging.CRITICAL)
    DBOS(config={"name": "bench", "system_database_url": url, "run_admin_server": False,
                 "log_level": "CRITICAL"})  # fmt: skip

    @DBOS.step()
    async def nothing(number: int) -> int:
        return number

    @DBOS.workflow()
    async def sequence(steps: int) -> int:
        return sum([await nothing(number) for number in range(steps)])

    DBOS.launch()
    await sequence(3)
    began, used = time.perf_counter(), cpu()
    handles = await asyncio.gather(
        *(DBOS.start_workflow_async(sequence, STEPS) for _ in range(RUNS))
    )
    results = await asyncio.gather(*(handle.get_result() for handle in handles))
    tell(time.perf_counter() - began, cpu() - used)
    assert results == [sum(range(STEPS))] * RUNS
    DBOS.destroy()


# --- here ---


class Bench:
    """A server with fsync, on TCP, in a folder that goes with it."""

    def __enter__(self) -> Bench:
        sys.path.insert(0, str(ROOT / "tests"))
        import postgres_server
        from chaos.cluster import free_port

        port = free_port("127.0.0.1")
        self.settings = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "256MB"}
        listening = {"listen_addresses": "127.0.0.1", "port": str(port)}
        self._module = postgres_server
        self.server = postgres_server.Server(
            postgres_server.short_folder(), self.settings | listening
        )
        self.server.make()
        self.server.start()
        self.base = f"postgresql://holdfast@127.0.0.1:{port}/postgres"
        self.folder = Path(tempfile.mkdtemp(dir=ROOT / "bench" / "runtime", prefix="tmp"))
        (self.folder / "flows.py").write_text(FLOWS)
        return self

    def __exit__(self, *_: object) -> None:
        import shutil

        self.server.stop()
        self._module.remove(self.server.folder)
        shutil.rmtree(self.folder)

    def url(self, namespace: str) -> str:
        return f"{self.base}?namespace={namespace}"

    def ask(self, namespace: str, sql: str) -> Any:
        import psycopg

        with psycopg.connect(self.base, autocommit=True) as session:
            session.execute(f"SET search_path = holdfast_{namespace}".encode())
            return (session.execute(sql.encode()).fetchone() or (None,))[0]

    def worker(self, namespace: str, settings: str) -> subprocess.Popen[bytes]:
        (self.folder / "holdfast.toml").write_text(f"[runtime]\n{settings}\n")
        command = [sys.executable, "-m", "holdfast.cli.main", "worker", "flows.py", "--quiet"]
        environment = {**os.environ, "HOLDFAST_STORE": self.url(namespace)}
        return subprocess.Popen(
            command, cwd=self.folder, env=environment, stderr=subprocess.DEVNULL
        )

    async def begin(self, namespace: str, flow: str, number: int) -> None:
        sys.path.insert(0, str(self.folder))
        import flows

        from holdfast import open_engine, start

        workflow = getattr(flows, flow)
        async with open_engine(self.url(namespace), worker=False):
            for first in range(0, number, 1000):
                numbers = range(first, min(first + 1000, number))
                await asyncio.gather(*(start(workflow, each) for each in numbers))


def until(condition: Callable[[], Any], seconds: float = 600) -> Any:
    ends = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > ends:
            raise SystemExit("nothing happened for too long")
        time.sleep(0.02)
    return found


def peers(bench: Bench) -> None:
    turns: dict[str, list[dict[str, float]]] = {"Holdfast": [], "DBOS": []}
    for number in range(ROUNDS):
        for name, python, url in (
            ("Holdfast", sys.executable, bench.url(f"p{number}")),
            ("DBOS", str(PEERS), bench.base.replace("/postgres", f"/dbos{number}")),
        ):
            command = [python, str(HERE), f"as-{name.lower()}", url]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
            turns[name].append(json.loads(done.stdout.strip().splitlines()[-1]))
    print(f"{RUNS} runs of {STEPS} steps, medians of {ROUNDS} rounds in turn")
    medians = {
        name: {key: statistics.median(each[key] for each in found) for key in found[0]}
        for name, found in turns.items()
    }
    for name, found in medians.items():
        print(f"  {name:10}", "  ".join(f"{value:10,.3f} {key}" for key, value in found.items()))
    print(f"  ratio {medians['Holdfast']['steps/s'] / medians['DBOS']['steps/s']:.1f}")


def workers(bench: Bench) -> None:
    rates: dict[int, float] = {}
    for number, runs in ((1, 100), (4, 400)):
        namespace = f"w{number}"
        asyncio.run(bench.begin(namespace, "five", runs))
        found = [bench.worker(namespace, "max_runs = 4") for _ in range(number)]
        try:
            until(lambda namespace=namespace, runs=runs: bench.ask(namespace, DONE) == runs)
        finally:
            for each in found:
                each.terminate()
                each.wait()
        # Without the first and last tenth, in which not all of them are at work.
        sql = """SELECT 0.8 * count(*) / (percentile_cont(0.9) WITHIN GROUP (ORDER BY at)
        - percentile_cont(0.1) WITHIN GROUP (ORDER BY at)) FROM events
        WHERE type = 'step.completed'"""
        rates[number] = float(bench.ask(namespace, sql))
        print(f"{number} workers: {rates[number]:,.0f} steps of 50 ms a second")
    print(f"  ratio {rates[4] / rates[1]:.2f}")


def takeover(bench: Bench) -> None:
    settings = f"lease_seconds = {LEASE}"
    asyncio.run(bench.begin("takeover", "long", 1))
    two = [bench.worker("takeover", settings) for _ in range(2)]
    pids = {each.pid: each for each in two}
    taken: list[float] = []
    try:
        for _ in range(5):
            until(lambda: bench.ask("takeover", "SELECT count(*) FROM workers") == 2)
            owner = until(lambda: bench.ask("takeover", OWNER))
            fence = bench.ask("takeover", "SELECT fence FROM runs")
            began = time.monotonic()
            pids[owner].kill()
            pids.pop(owner).wait()
            until(lambda fence=fence: bench.ask("takeover", "SELECT fence FROM runs") > fence + 1)
            taken.append(time.monotonic() - began)
            fresh = bench.worker("takeover", settings)
            pids[fresh.pid] = fresh
    finally:
        for each in pids.values():
            each.kill()
            each.wait()
    shown = ", ".join(f"{seconds:.1f}" for seconds in taken)
    print(f"taken over after {shown} s, with a lease of {LEASE} s")


def sleeping(bench: Bench) -> None:
    from chaos.cluster import free_port

    began = time.perf_counter()
    asyncio.run(bench.begin("asleep", "later", SLEEPING))
    print(f"{SLEEPING:,} runs started in {time.perf_counter() - began:.0f} s")
    # As they are when they have begun to sleep and left memory.
    bench.ask("asleep", "UPDATE runs SET status = 'waiting', due_at = due_at + 2592000 RETURNING 1")
    bench.ask("asleep", "SELECT 1")
    port = free_port("127.0.0.1")
    command = [sys.executable, "-m", "holdfast.cli.main", "serve", "flows.py", "--port", str(port)]
    environment = {**os.environ, "HOLDFAST_STORE": bench.url("asleep")}
    server = subprocess.Popen(
        command,
        cwd=bench.folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://127.0.0.1:{port}"

        def up() -> bool:
            try:
                return urllib.request.urlopen(address + "/healthz", timeout=5).status == 200
            except OSError:
                return False

        until(up)
        some = bench.ask("asleep", "SELECT id FROM runs LIMIT 1")
        for page in ("/runs", "/runs?status=waiting", "/runs?text=later", f"/runs/{some}",
                     "/workers", "/approvals", "/calls"):  # fmt: skip
            times: list[float] = []
            for _ in range(7):
                began = time.perf_counter()
                urllib.request.urlopen(address + page, timeout=60).read()
                times.append(time.perf_counter() - began)
            print(f"  {page.replace(some, 'RUN'):24}{statistics.median(times) * 1e3:8.0f} ms")
        asyncio.run(bench.begin("asleep", "five", 1))
        began = time.perf_counter()
        until(lambda: bench.ask("asleep", DONE))
        print(f"  a run of five steps among them took {time.perf_counter() - began:.2f} s")
    finally:
        server.terminate()
        server.wait()


PARTS: dict[str, Callable[[Bench], None]] = {
    "peers": peers,
    "workers": workers,
    "takeover": takeover,
    "sleeping": sleeping,
}


def main(*wanted: str) -> None:
    with Bench() as bench:
        for name in wanted or PARTS:
            PARTS[name](bench)


if __name__ == "__main__":
    if sys.argv[1:2] == ["as-holdfast"]:
        asyncio.run(holdfast_contends(sys.argv[2]))
    elif sys.argv[1:2] == ["as-dbos"]:
        asyncio.run(dbos_contends(sys.argv[2]))
    else:
        main(*sys.argv[1:])
