"""Several real processes on one store: leases, fences, wake-ups, keyed starts, crash loops."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crash import program
from crash.checks import check_whole, journals
from crash.program import notes, worker
from holdfast import RunFailed, get_run, open_engine, send_event, start
from holdfast.records import STEP_COMPLETED
from waiting import LIMIT, until

SHORT_LEASE = {"lease_seconds": 1.0, "sweep_seconds": 0.1}


def seen(folder: Path, what: str, who: int | None = None) -> list[list[object]]:
    return [n for n in notes(folder) if n[1] == what and who in (None, n[0])]


async def started(folder: Path, workflow: object, *arguments: object) -> str:
    async with open_engine(folder / "store.db", worker=False):
        run = await start(workflow, str(folder), *arguments)  # type: ignore[arg-type]
        return run.id


async def result_of(folder: Path, run_id: str) -> Any:
    async with open_engine(folder / "store.db", worker=False):
        run = await get_run(run_id)
        return await asyncio.wait_for(run.result(), program.PATIENCE)


def pause_past_the_lease(folder: Path, without: str = "") -> tuple[object, int, int]:
    """One worker is stopped at the gate until another has done its run, then wakes.

    Returns the run's result and the two workers.
    """
    run_id = asyncio.run(started(folder, program.gated))
    with worker(folder, without=without, **SHORT_LEASE) as first:
        until(lambda: seen(folder, "at the gate", first.pid), "the first worker's step")
        until(lambda: any(n[3] == "0/2" for n in seen(folder, "answer")), "its beginning on record")
        first.send_signal(signal.SIGSTOP)
        with worker(folder, without=without, **SHORT_LEASE) as second:
            until(lambda: seen(folder, "at the gate", second.pid), "the take-over")
            (folder / "gate").touch()
            result = asyncio.run(result_of(folder, run_id))
            first.send_signal(signal.SIGCONT)

            def answered() -> bool:
                answers = seen(folder, "answer", first.pid)
                return any(n[2] == STEP_COMPLETED and n[3] == "0/2" for n in answers)

            until(answered, "the first worker's attempt to write")
            return result, first.pid, second.pid


def test_a_worker_paused_past_its_lease_cannot_write(tmp_path: Path) -> None:
    result, first, second = pause_past_the_lease(tmp_path)
    assert result == ["before", second, "after"]
    assert [n[-1] for n in seen(tmp_path, "answer", first) if n[3] == "0/2"][-1] == "LeaseLost"
    check_whole(journals(tmp_path / "store.db"))
    keys = {n[2] for n in seen(tmp_path, "at the gate")}
    assert len(keys) == 1, "both attempts have the same idempotency key"
    assert len(seen(tmp_path, "touch")) == 2, "what was recorded was not done again"


def test_without_the_fence_a_paused_worker_records_a_second_result(tmp_path: Path) -> None:
    pause_past_the_lease(tmp_path, without="the fence")
    with pytest.raises(AssertionError, match="twice"):
        check_whole(journals(tmp_path / "store.db"))


def test_two_workers_share_fifty_runs_and_each_is_done_once(tmp_path: Path) -> None:
    async def fifty() -> list[str]:
        async with open_engine(tmp_path / "store.db", worker=False):
            runs = [await start(program.shared, str(tmp_path), n) for n in range(50)]
            ids = [run.id for run in runs]
            with worker(tmp_path, max_runs=5), worker(tmp_path, max_runs=5):
                wanted = asyncio.gather(*(run.result() for run in runs))
                results = await asyncio.wait_for(wanted, program.PATIENCE)
            assert results == [f"run {n}" for n in range(50)]
            return ids

    ids = asyncio.run(fifty())
    found = journals(tmp_path / "store.db")
    check_whole(found)
    assert sorted(found) == sorted(ids)
    done = Counter(n[3] for n in seen(tmp_path, "touch"))
    assert len(done) == 50 and set(done.values()) == {1}, "nothing was done twice"
    assert len({n[0] for n in seen(tmp_path, "touch")}) == 2, "both have worked"


START_TOGETHER = """
import asyncio, os, sys
from crash import program
from holdfast import open_engine, start

async def begin(store):
    async with open_engine(store, worker=False):
        run = await start(program.waiting.options(key="only one"), "nowhere")
        os.write(1, run.id.encode() + b" ")  # in one piece: twenty share this pipe

store, count = sys.argv[1], int(sys.argv[2])
reading, writing = os.pipe()
children = []
for _ in range(count):
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        os.read(reading, 1)  # until the parent closes it: all at once
        asyncio.run(begin(store))
        os._exit(0)
    children.append(pid)
os.close(writing)
sys.exit(any(os.waitpid(pid, 0)[1] for pid in children))
"""


def test_a_keyed_start_by_twenty_processes_at_once_makes_one_run(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    done = subprocess.run(
        [sys.executable, "-c", START_TOGETHER, str(store), "20"],
        env={**os.environ, "PYTHONPATH": str(program.TESTS)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ids = done.stdout.split()
    assert len(ids) == 20
    assert set(ids) == set(journals(store)), "one run, and all have got it"


LAZY = {"sweep_seconds": 300.0}
"""A worker that would look by itself far too late: only a wake-up can help."""


def test_an_event_from_another_process_wakes_a_waiting_run(tmp_path: Path) -> None:
    run_id = asyncio.run(started(tmp_path, program.waiting))
    with worker(tmp_path, **LAZY):
        until(lambda: seen(tmp_path, "touch"), "the run's first step")
        asyncio.run(_answer(tmp_path))
        assert asyncio.run(result_of(tmp_path, run_id)) == "yes"


def test_an_event_from_another_process_wakes_a_run_that_has_left_memory(tmp_path: Path) -> None:
    async def left_memory() -> bool:
        async with open_engine(tmp_path / "store.db", worker=False):
            return (await (await get_run(run_id)).record()).status == "waiting"

    run_id = asyncio.run(started(tmp_path, program.waiting))
    with worker(tmp_path, idle_seconds=0.05, **LAZY):
        until(lambda: seen(tmp_path, "touch"), "the run's first step")
        until(lambda: asyncio.run(left_memory()), "leaving memory")
        asyncio.run(_answer(tmp_path))
        assert asyncio.run(result_of(tmp_path, run_id)) == "yes"


def test_a_start_in_another_process_wakes_a_worker(tmp_path: Path) -> None:
    with worker(tmp_path, **LAZY):
        until(lambda: seen(tmp_path, "open"), "the worker's start")
        run_id = asyncio.run(started(tmp_path, program.waiting))
        asyncio.run(_answer(tmp_path))
        assert asyncio.run(result_of(tmp_path, run_id)) == "yes"


async def _answer(folder: Path) -> None:
    async with open_engine(folder / "store.db", worker=False):
        await send_event("program-answer", "yes")


def test_an_idle_worker_uses_next_to_no_processor_time(tmp_path: Path) -> None:
    def used(pid: int) -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc to see another process's processor time")
    run_id = asyncio.run(started(tmp_path, program.waiting))
    with worker(tmp_path) as idle:
        until(lambda: seen(tmp_path, "touch"), "the run's first step")
        before, began = used(idle.pid), time.monotonic()
        until(lambda: time.monotonic() - began > 4, "four seconds")
        spent = used(idle.pid) - before
    assert spent < 0.4, f"{spent} s of processor time in 4 s, for {run_id} that waits"


def test_a_run_that_kills_its_workers_is_stopped_and_those_beside_it_go_on(
    tmp_path: Path,
) -> None:
    limits = {"crash_limit": 4, "sweep_seconds": 0.1}
    bad = asyncio.run(started(tmp_path, program.deadly))
    good = [asyncio.run(started(tmp_path, program.gated)) for _ in range(3)]
    for _ in range(30):
        with worker(tmp_path, **limits) as process:
            until(lambda p=process: p.poll() is not None or _ended(tmp_path, bad), "some end")
            if process.poll() is None:
                break
            assert process.poll() == -signal.SIGKILL
            if len(seen(tmp_path, "kill")) == 2:
                # Enough to suspect everyone who was there. From now on, one at a time.
                (tmp_path / "gate").touch()
    with worker(tmp_path, **limits):
        with pytest.raises(RunFailed, match="CrashLoop: 4 workers in a row died"):
            asyncio.run(result_of(tmp_path, bad))
        for run_id in good:
            before, _who, after = asyncio.run(result_of(tmp_path, run_id))
            assert (before, after) == ("before", "after")
    assert len([n for n in seen(tmp_path, "touch") if n[2] == "harmless"]) == 1


def _ended(folder: Path, run_id: str) -> bool:
    async def ended() -> bool:
        async with open_engine(folder / "store.db", worker=False):
            return (await (await get_run(run_id)).record()).ended

    return asyncio.run(ended())
