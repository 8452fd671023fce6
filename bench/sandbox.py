"""How fast sandboxes are, against a plain subprocess, bubblewrap and `runsc do`, in one run.

    make bench-sandbox            a table
    python bench/sandbox.py --json results.json

Every figure is the median of its repetitions, with the 95th percentile beside it. Measure on a
quiet machine: the load average is printed with the results.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast.sandbox import Host, Sandbox, StoreObserver

PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
results: dict[str, dict[str, float]] = {}


def note(name: str, times: list[float], unit: str = "ms") -> None:
    scale = 1000 if unit == "ms" else 1
    ordered = sorted(t * scale for t in times)
    p50, p95 = statistics.median(ordered), ordered[int(len(ordered) * 0.95)]
    results[name] = {"p50": round(p50, 3), "p95": round(p95, 3), "n": len(times)}
    print(f"{name:<58} {p50:>9.2f} {unit}   p95 {p95:>9.2f}   n={len(times)}", flush=True)


async def timed(
    count: int, work: Callable[[], Awaitable[object]], pause: float = 0.0
) -> list[float]:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await work()
        times.append(time.perf_counter() - began)
        await asyncio.sleep(pause)
    return times


def outside(count: int, *words: str, cwd: str | None = None) -> list[float]:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        subprocess.run(words, capture_output=True, cwd=cwd, check=True)
        times.append(time.perf_counter() - began)
    return times


def bubblewrap() -> list[str]:
    """The command line of a bare sandbox of its, or nothing where it is not installed."""
    found = shutil.which("bwrap")
    if found is None:
        return []
    links = [("usr/lib", "/lib"), ("usr/lib64", "/lib64"), ("usr/bin", "/bin")]
    linked = [word for target, place in links for word in ("--symlink", target, place)]
    walls = ["--unshare-all", "--ro-bind", "/usr", "/usr", *linked, "--proc", "/proc"]
    return [found, *walls, "--dev", "/dev", "--tmpfs", "/tmp", "--die-with-parent"]


def peers(count: int) -> None:
    note("plain subprocess: echo", outside(count, "echo", "hi"))
    note("plain subprocess: python -c pass", outside(count, PYTHON, "-c", "pass"))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "script.py").write_text("print('x')\n")
        Path(folder, "test_one.py").write_text("def test_one():\n    assert True\n")
        note("plain subprocess: python script.py", outside(count, PYTHON, "script.py", cwd=folder))
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_one.py"]
        note("plain subprocess: pytest, 1 test", outside(max(3, count // 5), *pytest, cwd=folder))
    node = shutil.which("node")
    if node:
        note("plain subprocess: node -e 1", outside(max(3, count // 3), node, "-e", "1"))
    walls = bubblewrap()
    if walls:
        note("bubblewrap: true", outside(count, *walls, "true"))
        note("bubblewrap: echo", outside(count, *walls, "echo", "hi"))
        note(
            "bubblewrap: /usr/bin/python3 -c pass",
            outside(count, *walls, "/usr/bin/python3", "-c", "pass"),
        )
    else:
        print("bubblewrap is not installed: no comparison with it")
    runsc = shutil.which("runsc")
    if runsc and os.geteuid() == 0:
        do = [runsc, "--network=none", "--ignore-cgroups", "do", "true"]
        note("runsc do: true", outside(max(3, count // 8), *do))


async def one_backend(name: str, state: str, count: int) -> None:
    cold = Host(state, pool=0)
    found = await cold.probe(name)
    if not found.probe.works:
        print(f"{name}: does not work here: {found.probe.reason}")
        await cold.aclose()
        return

    async def create_and_stop() -> None:
        await (await Sandbox.create(backend=name, host=cold)).stop()

    made: list[Sandbox] = []

    async def create_only() -> None:
        made.append(await Sandbox.create(backend=name, host=cold))

    few = count if name == "namespace" else max(5, count // 5)
    times = await timed(few, create_only)
    note(f"{name}: cold create", times)
    for sandbox in made:
        await sandbox.stop()

    async def create_and_echo() -> None:
        sandbox = await Sandbox.create(backend=name, host=cold)
        await sandbox.run("echo", "hi")
        made.append(sandbox)

    made.clear()
    note(f"{name}: cold create to first output", await timed(few, create_and_echo))
    stops = []
    for sandbox in made:
        began = time.perf_counter()
        await sandbox.stop()
        stops.append(time.perf_counter() - began)
    note(f"{name}: stop", stops)
    await live(name, cold, count)
    if name == "namespace":
        await memory_and_many(cold)
    await snapshots(name, cold)
    await cold.aclose()
    await pooled(name, state, few)


async def pooled(name: str, state: str, count: int) -> None:
    """Create and echo from the pool, with and without records, in turn with one `bwrap true`."""
    host = Host(state, pool=2)
    await host.warm(name)
    walls = bubblewrap()
    recorder = StoreObserver()
    times: dict[str, list[float]] = {"": [], ", on record": []}
    walled: list[float] = []
    for turn in range(2 * count):
        label = ", on record" if turn % 2 else ""
        host.observers[:] = [recorder] if turn % 2 else []
        pool = host._pools[name]
        while len(pool) < 2:
            await asyncio.sleep(0.01)
        if walls:
            walled += outside(1, *walls, "true")
        began = time.perf_counter()
        sandbox = await Sandbox.create(backend=name, host=host)
        await sandbox.run("echo", "hi")
        times[label].append(time.perf_counter() - began)
        await sandbox.stop()
        await asyncio.sleep(0.05)
    for label, taken in times.items():
        note(f"{name}: pooled create + echo{label}", taken)
    if walls:
        ratio = statistics.median(times[""]) / statistics.median(walled)
        results[f"{name}: pooled create + echo over bwrap true, in turn"] = {"ratio": ratio}
        print(f"{name}: pooled create + echo takes {ratio:.2f} of a `bwrap true` in turn with it")
    host.observers.clear()
    await asyncio.to_thread(recorder.close)
    await host.aclose()


async def live(name: str, host: Host, count: int) -> None:
    async with await Sandbox.create(backend=name, host=host, cpus=2) as sandbox:
        await sandbox.write_files(
            {"script.py": "print('x')\n", "test_one.py": "def test_one():\n    assert True\n"}
        )
        note(
            f"{name}: echo in a live sandbox", await timed(count, lambda: sandbox.run("echo", "hi"))
        )
        run = sandbox.run
        note(
            f"{name}: python -c pass (zygote)",
            await timed(count, lambda: run("python", "-c", "pass")),
        )
        note(
            f"{name}: python script.py (zygote)",
            await timed(count, lambda: run("python", "script.py")),
        )
        fresh = await timed(count, lambda: run("python", "-u", "script.py"))
        note(f"{name}: python script.py (fresh interpreter)", fresh)
        note(f"{name}: node -e 1", await timed(max(3, count // 3), lambda: run("node", "-e", "1")))
        words = ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_one.py")
        note(f"{name}: pytest, 1 test", await timed(max(3, count // 5), lambda: run(*words)))


async def memory_and_many(host: Host) -> None:
    idle = [await Sandbox.create(backend="namespace", host=host) for _ in range(20)]
    shares = []
    for sandbox in idle:
        text = Path(f"/proc/{sandbox._instance.pid}/smaps_rollup").read_text()
        shares.append(
            next(int(x.split()[1]) / 1024 for x in text.splitlines() if x.startswith("Pss:"))
        )
    note("namespace: memory per idle sandbox (MB, proportional)", shares, "MB")
    await asyncio.gather(*(s.stop() for s in idle))
    began = time.perf_counter()

    async def one() -> None:
        async with await Sandbox.create(backend="namespace", host=host) as sandbox:
            assert (await sandbox.run("echo", "hi")).ok

    await asyncio.gather(*(one() for _ in range(100)))
    note("namespace: 100 sandboxes at once, created, used, stopped", [time.perf_counter() - began])


async def snapshots(name: str, host: Host) -> None:
    fill = "import os\nfor d in range(20):\n os.makedirs(f'd{d}')\n for f in range(100):\n"
    fill += "  open(f'd{d}/{f}', 'wb').write(os.urandom(110_000))"
    async with await Sandbox.create(backend=name, host=host, memory="1gb") as sandbox:
        assert (await sandbox.run("python", "-c", fill)).ok
        began = time.perf_counter()
        snapshot = await sandbox.snapshot()
        took = time.perf_counter() - began
        note(f"{name}: snapshot of {snapshot.size >> 20} MB in 2000 files", [took])
    times = []
    for _ in range(20 if name == "namespace" else 5):
        began = time.perf_counter()
        again = await Sandbox.create(backend=name, host=host, memory="1gb", source=snapshot)
        times.append(time.perf_counter() - began)
        assert len(await again.read_file("d7/7")) == 110_000
        await again.stop()
    note(f"{name}: create from that snapshot", times)
    snapshot.delete()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--count", type=int, default=50)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    kernel = os.uname()
    print(f"{kernel.machine}, {os.cpu_count()} processors, {kernel.release}, load {load:.2f}")
    peers(options.count)
    with tempfile.TemporaryDirectory(prefix="hf-") as state:
        os.environ["HOLDFAST_STORE"] = str(Path(state, "records.db"))
        for name in ("namespace", "gvisor"):
            await one_backend(name, state, options.count)
    if options.json:
        Path(options.json).write_text(json.dumps({"load": load, "results": results}, indent=2))


if __name__ == "__main__":
    asyncio.run(main())
