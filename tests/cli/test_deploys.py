"""Versions side by side: who takes what, what is left, and queues."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import postgres_server
from holdfast import open_engine, send_event
from waiting import LIMIT

from .conftest import Holdfast

CODE = """
from holdfast import step, wait_for_event, workflow

@step
async def note() -> str:
    return {said!r}

@workflow(version={version!r})
async def told() -> str:
    await wait_for_event("go", timeout="1d")
    return await note()

@workflow(version={version!r}, queue="gpu")
async def heavy() -> str:
    return await note()
"""


@pytest.mark.skipif(postgres_server.programs() is None, reason=postgres_server.MISSING)
async def test_old_and_new_workers_go_on_with_their_own_runs_until_none_is_left(
    holdfast: Holdfast,
) -> None:
    url = holdfast.environment["HOLDFAST_STORE"] = postgres_server.fresh_url()
    for version in ("one", "two"):
        text = CODE.format(said=f"by {version}", version=version)
        (holdfast.folder / f"{version}.py").write_text(text)
    runs = {
        version: holdfast("run", f"{version}.py:told", "--detach").out.strip()
        for version in ("one", "two")
    }
    left = holdfast("run", "one.py:heavy", "--detach").out.strip()
    found = holdfast("deploys", "two.py", "--json").json["versions"]
    assert [(each["workflow"], each["version"], each["open"], each["this_code"]) for each in found] == [
        ("heavy", "one", 1, False), ("told", "one", 1, False), ("told", "two", 1, True),
    ]  # fmt: skip
    for version in ("one", "two"):
        options = ("--own-version", "--queue", "default", "--json", "--quiet")
        process = holdfast.spawn("worker", f"{version}.py", *options)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["worker"]

    async with open_engine(url, worker=False) as engine:

        async def ended(run: str) -> Any:
            async with asyncio.timeout(LIMIT):
                while not (found := await engine.store.get(run)) or not found.ended:
                    await asyncio.sleep(0.02)
            return json.loads((await engine.store.last_event(run)).value or b"null")

        await send_event("go", {})
        for version, run in runs.items():
            assert await ended(run) == f"by {version}", "with the code it was begun with"
        waiting = await engine.store.get(left)
        assert waiting is not None and waiting.status == "pending", "nobody takes from its queue"
        holdfast.spawn("worker", "one.py", "--queue", "gpu")
        assert await ended(left) == "by one"
    assert holdfast("deploys").out == "WORKFLOW  VERSION  CODE  OPEN  RUNS  OLDEST\n"


def test_a_queue_that_no_workflow_has_is_refused(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(CODE.format(said="", version="1"))
    done = holdfast("worker", "one.py", "--queue", "gpus")
    assert done.code == 2 and "no workflow has the queue gpus" in done.err
