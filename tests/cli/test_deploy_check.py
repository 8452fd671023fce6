"""`holdfast runs check` and `holdfast worker --check`, as users call them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

APP = """
from holdfast import step, wait_for_event, workflow


@step
async def charge(number: int) -> int:
    return number


@workflow
async def pay(number: int) -> int:
    paid = await charge(number)
    await wait_for_event("shipped", timeout="7d")
    return paid
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a workflow, committed, and two runs of it that wait."""
    (tmp_path / "app.py").write_text(APP)
    for command in (["init", "-q"], ["add", "app.py"], ["commit", "-qm", "deployed"]):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
        subprocess.run(["git", *identity, *command], cwd=tmp_path, check=True)
    script = """
import asyncio, app
from holdfast import start
from holdfast.records import WAIT_CREATED
from holdfast.runtime.app import open_engine
async def main():
    async with open_engine("store.db") as engine:
        runs = [await start(app.pay, n) for n in (1, 2)]
        for run in runs:
            while not any(e.type == WAIT_CREATED for e in await engine.store.load(run.id)):
                await asyncio.sleep(0.01)
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=120)
    return tmp_path


def holdfast(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.cli.main", *words, "--store", "store.db"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_what_a_deploy_would_break_is_said_before_and_the_guard_that_is_printed_mends_it(
    project: Path,
):
    done = holdfast(project, "runs", "check", "app.py")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "2 runs, 0 break"), done.stderr

    (project / "app.py").write_text(APP.replace("    paid =", "    await charge(0)\n    paid ="))
    done = holdfast(project, "runs", "check", "app.py")
    assert done.returncode == 1
    assert done.stdout.startswith("2 runs, 2 break\n  live         2  2 needs patched\n")
    assert "app.py:12" in done.stdout

    refused = holdfast(project, "worker", "--check", "app.py")
    assert refused.returncode == 3
    assert "2 of 2 live runs would be stuck on this code" in refused.stderr

    report = json.loads(holdfast(project, "runs", "check", "app.py", "--json").stdout)
    assert (report["break"], report["live"]) == (2, {"needs patched": 2})
    (guard,) = report["guards"]
    subprocess.run(["git", "apply"], input=guard["diff"], text=True, cwd=project, check=True)
    done = holdfast(project, "runs", "check", "app.py")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "2 runs, 0 break"), done.stderr


def test_wrong_usage_is_said(project: Path):
    assert (
        "neither a duration nor a date" in holdfast(project, "runs", "check", "--since", "x").stderr
    )
    done = holdfast(project, "runs", "check", "app.py", "--base", "nowhere", "--json")
    assert done.returncode == 0, "nothing broke: the base was not needed"
    done = holdfast(project, "runs", "check")
    assert (done.returncode, "2 unclaimed" in done.stdout) == (1, True)
    assert holdfast(project, "runs", "check", "--ignore-unclaimed").returncode == 0
