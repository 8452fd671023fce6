"""Thousands of sandboxes, and hundreds at once, without a failure or anything left: `make soak`.

    python tests/sandbox/soak.py [--backend namespace] [--cycles 2000] [--at-once 200]

On each backend: `cycles` times a sandbox is made, says its own number and is stopped, eight beside each
other; then `at-once` sandboxes are made at the same time, all of them live together, each says its
number, and all are stopped. Of the host there must be left what was there before: descriptors,
threads, processes, mounts, cgroups, folders; and its memory may not grow with the number of cycles.

It prints what it measured, and exits with 1 if anything failed or was left.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field, fields
from pathlib import Path

from holdfast.sandbox import Host, Sandbox

BESIDE = 8
_SETTLE = 60.0
"""Seconds in which what was there before must be all that is there; it takes one or two."""
_GROWTH = 24 << 20
"""Bytes of this process that may be more after all cycles than after a tenth of them."""


@dataclass(frozen=True)
class Traces:
    """What a host has outside its sandboxes."""

    descriptors: int
    threads: int
    processes: int
    mounts: int
    cgroups: int
    records: int
    bundles: int
    sandboxes: int
    waiting: int

    @classmethod
    def of(cls, host: Host) -> Traces:
        roots = [at for at, _, _ in os.walk("/sys/fs/cgroup") if host.folder.name in Path(at).name]
        return cls(
            descriptors=len(os.listdir("/proc/self/fd")),
            # Those of asyncio's own pool, which has an end, come as they are first needed.
            threads=sum(not each.name.startswith("asyncio_") for each in threading.enumerate()),
            processes=len(_family(os.getpid())),
            mounts=sum(
                str(host.state) in line or "/sbx_" in line
                for line in Path("/proc/self/mountinfo").read_text().splitlines()
            ),
            cgroups=sum(len(list(Path(root).glob("sbx_*"))) for root in roots),
            records=len(os.listdir(host.folder.path / "sandboxes")),
            bundles=len(list(host.folder.path.glob("gvisor/bundles/*"))),
            sandboxes=len(host.sandboxes),
            waiting=host.waiting,
        )

    def beyond(self, before: Traces) -> list[str]:
        """What there is more of than before."""
        return [
            f"{each.name} {getattr(before, each.name)} → {getattr(self, each.name)}"
            for each in fields(self)
            if getattr(self, each.name) > getattr(before, each.name)
        ]


@dataclass
class Tally:
    """What came of one backend."""

    wrong: list[str] = field(default_factory=list[str])
    times: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def time(self, what: str, began: float) -> None:
        self.times.setdefault(what, []).append(time.perf_counter() - began)

    def line(self, what: str) -> str:
        taken = sorted(self.times[what])
        p50, p99 = statistics.median(taken), taken[int(len(taken) * 0.99)]
        return f"{what} {p50 * 1000:.0f} ms (p99 {p99 * 1000:.0f})"


def _family(top: int) -> list[int]:
    """A process and all below it."""
    found = [top]
    for pid in found:
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
    return found


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


async def _one(host: Host, backend: str, number: int, tally: Tally) -> None:
    """Make, ask, stop; what goes wrong is counted, and the next goes on."""
    try:
        began = time.perf_counter()
        sandbox = await Sandbox.create(backend=backend, host=host, memory="64mb", timeout=600)  # type: ignore[arg-type]
        tally.time("create", began)
        try:
            began = time.perf_counter()
            said = await sandbox.run("echo", str(number))
            tally.time("echo", began)
            if said.stdout != f"{number}\n":
                tally.wrong.append(f"{number}: {said}")
        finally:
            began = time.perf_counter()
            await sandbox.stop()
            tally.time("stop", began)
    except Exception as error:
        tally.wrong.append(f"{number}: {error!r}")


async def cycles(host: Host, backend: str, many: int, tally: Tally) -> None:
    """Sandboxes that come and go, a few beside each other."""
    numbers = iter(range(many))
    done, early, warm = 0, 0, max(1, many // 10)

    async def worker() -> None:
        nonlocal done, early
        for number in numbers:
            await _one(host, backend, number, tally)
            done += 1
            if done == warm:
                early = _resident()
            if done % 250 == 0:
                print(f"  {done} cycles, {len(tally.wrong)} wrong", flush=True)

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(BESIDE)))
    grown = _resident() - early
    print(
        f"{backend}: {many} cycles in {time.perf_counter() - began:.0f} s, {len(tally.wrong)} failed: "
        f"{tally.line('create')}, {tally.line('echo')}, {tally.line('stop')}; "
        f"memory of the host's process {grown / (1 << 20):+.1f} MB over the last nine tenths",
        flush=True,
    )
    if grown > _GROWTH:
        tally.wrong.append(f"the host's process grew by {grown >> 20} MB")


async def at_once(host: Host, backend: str, many: int, tally: Tally) -> None:
    """All made at the same time, all alive together, all stopped at the same time."""
    began = time.perf_counter()
    made = await asyncio.gather(
        *(
            Sandbox.create(backend=backend, host=host, memory="64mb", timeout=3600)  # type: ignore[arg-type]
            for _ in range(many)
        ),
        return_exceptions=True,
    )
    created = time.perf_counter()
    alive = [each for each in made if isinstance(each, Sandbox)]
    tally.wrong += [repr(each) for each in made if isinstance(each, BaseException)]
    said = await asyncio.gather(
        *(each.run("hostname", timeout=600) for each in alive), return_exceptions=True
    )
    for sandbox, answer in zip(alive, said, strict=True):
        own = sandbox.id.lower().replace("_", "-")
        if isinstance(answer, BaseException) or answer.stdout.strip() != own:
            tally.wrong.append(f"{sandbox.id}: {answer!r}")
    answered = time.perf_counter()
    if len(host.sandboxes) != many:
        tally.wrong.append(f"{len(host.sandboxes)} of {many} lived together")
    await asyncio.gather(*(each.stop() for each in alive))
    ended = time.perf_counter()
    print(
        f"{backend}: {len(alive)} of {many} at once: made in {created - began:.1f} s, "
        f"a command in each {answered - created:.1f} s, stopped in {ended - answered:.1f} s",
        flush=True,
    )


async def soak(backend: str, many: int, together: int) -> list[str]:
    """What went wrong on this backend."""
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="hf-") as state:
        host = Host(state, pool=0)
        try:
            found = await host.probe(backend)
            if not found.probe.works:
                print(f"{backend}: NOT TESTED here: {found.probe.reason}", flush=True)
                return []
            for number in range(2 * BESIDE):  # what stays once it is there
                await _one(host, backend, -number, tally)
            await asyncio.gather(*(_one(host, backend, n, tally) for n in range(4 * BESIDE)))
            tally.times.clear()
            before = Traces.of(host)
            await cycles(host, backend, many, tally)
            await at_once(host, backend, together, tally)
            deadline = time.monotonic() + _SETTLE
            while (left := Traces.of(host).beyond(before)) and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
            print(
                f"{backend}: left behind: {', '.join(left) or 'nothing'} (of {before})", flush=True
            )
            tally.wrong += left
        finally:
            await host.aclose()
    for each in tally.wrong[:20]:
        print(f"  {backend}: {each}")
    return tally.wrong


async def main() -> int:
    told = argparse.ArgumentParser(description=__doc__)
    told.add_argument("--backend", action="append", choices=("namespace", "gvisor"))
    told.add_argument("--cycles", type=int, default=2000)
    told.add_argument("--at-once", type=int, default=200)
    asked = told.parse_args()
    wrong = [
        each
        for backend in asked.backend or ("namespace", "gvisor")
        for each in await soak(backend, asked.cycles, asked.at_once)
    ]
    print(f"load {os.getloadavg()[0]:.1f}; {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
