"""kill -9 at every stage of a run: it goes on, nothing is paid twice, the files come back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from agents.repo import repos
from agents.repo.repos import make
from holdfast import get_run, open_engine
from holdfast.gateway import default_gateway
from holdfast.records import Step
from holdfast.runtime.engine import Engine
from holdfast.runtime.step_records import steps_of
from holdfast.sandbox import default_host
from holdfast.sandbox.snapshots import list_snapshots
from holdfast.store.base import RunFilter
from holdfast.store.sqlite.sandboxes import SqliteSandboxRecords
from waiting import LIMIT

KILLED_AT = [
    ("take_repo", "running", 1),
    ("take_repo", "completed", 1),
    ("run_tests", "running", 1),
    ("list_files", "completed", 1),
    ("edit_file", "completed", 1),
    ("run", "running", 1),
    ("write_file", "completed", 1),
    ("judge", "running", 1),
]


def worker(store: Path, repo: Path) -> subprocess.Popen[bytes]:
    tests = Path(__file__).parents[2]
    command = [sys.executable, "-m", "agents.repo.crashing", str(store), str(repo)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(tests)})


async def steps(engine: Engine) -> list[Step]:
    page = await engine.store.list_runs(RunFilter(workflow="repair_repo"), 1, None)
    return steps_of(await engine.store.load(page.runs[0].id)) if page.runs else []


async def reached(engine: Engine, name: str, status: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not any(s.name == name and s.status == status for s in await steps(engine)):
        assert time.monotonic() < deadline, (name, status)
        assert process.poll() is None, "the worker ended before it was killed"
        await asyncio.sleep(0.01)


async def test_a_run_killed_again_and_again_goes_on_with_the_files_as_they_were(
    tmp_path: Path, sandbox_state: str
) -> None:
    repo = make(tmp_path / "slugs", repos.SLUGS)
    store = tmp_path / "runs.db"
    async with open_engine(store, worker=False) as engine:
        for name, status, _ in KILLED_AT:
            process = worker(store, repo)
            try:
                await reached(engine, name, status, process)
            finally:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
        process = worker(store, repo)
        assert process.wait(LIMIT) == 0

        page = await engine.store.list_runs(RunFilter(workflow="repair_repo"), 10, None)
        [run] = page.runs
        result = await (await get_run(run.id)).result()
        assert result.passed, result
        assert set(result.verdict.files) == {"src/slugs/slug.py", "CHANGES.md", "notes.txt"}
        assert result.patch.text.count("+line\n") == 1  # the killed command left nothing behind

        done = await steps(engine)
        restored = [s for s in done if s.name == "open_workspace"]
        assert len(restored) >= 4  # at the start, and after each death while it was open
        assert [json.loads(s.output)["text"] for s in done if s.name == "run"][-1].startswith(
            "line\nfixed"
        )
        calls = await default_gateway().ledger.calls(run_id=run.id)
        paid = [call.start.step_key for call in calls if call.status == "completed"]
        assert len(paid) == len(set(paid)) == 6
    records = SqliteSandboxRecords(store)
    page = await records.list(limit=1000)
    await records.close()
    assert page.sandboxes and not [s for s in page.sandboxes if s.live]
    assert not list_snapshots(default_host().state)
