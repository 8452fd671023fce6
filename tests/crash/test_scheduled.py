"""Schedules over several processes that are killed: nothing missed, nothing doubled."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from holdfast import list_runs, open_engine
from waiting import LIMIT, pauses

PROGRAM = Path(__file__).with_name("scheduled_process.py")


def begun(store: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, PROGRAM, store], stdin=subprocess.PIPE)


async def moments() -> list[datetime]:
    found, cursor = [], None
    while True:
        page = await list_runs(workflow="beat", limit=1000, cursor=cursor)
        found += [str(run.key).removeprefix("schedule:beat:") for run in page.runs]
        cursor = page.cursor
        if cursor is None:
            return sorted(datetime.fromisoformat(text) for text in found)


async def test_three_processes_that_are_killed_miss_and_double_nothing(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    processes = [begun(store) for _ in range(3)]
    try:
        async with open_engine(store, worker=False):
            for count in (3, 6, 9):
                deadline, pause = time.monotonic() + LIMIT, pauses()
                while len(await moments()) < count:
                    assert time.monotonic() < deadline
                    await asyncio.sleep(next(pause))
                killed = processes.pop(0)
                killed.kill()
                killed.communicate()
                processes.append(begun(store))
            found = await moments()
        steps = {later - earlier for earlier, later in pairwise(found)}
        assert steps == {timedelta(seconds=1)}
    finally:
        for process in processes:
            process.kill()
            process.communicate()
