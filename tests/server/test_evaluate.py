"""The code agent over HTTP: a task in, a program whose tests were run out."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from holdfast.sandbox import Sandbox
from holdfast.server import schemas

from .conftest import running, until
from .test_api import shaped


async def sandbox_works() -> bool:
    from holdfast.errors import SandboxUnavailable

    try:
        async with await Sandbox.create(runtime="python"):
            return True
    except SandboxUnavailable:
        return False


async def test_a_task_is_healed_and_everything_is_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not await sandbox_works():
        pytest.skip("no sandbox works here")
    monkeypatch.setenv("HOLDFAST_CODE_MODEL", "scripted/demo")
    async with running(tmp_path / "store.db") as server:
        body = {"prompt": "Write longest_common_subsequence(a, b)", "budget": "0.50", "attempts": 3}
        answer = await server.post("/api/evaluate", body, headers={"idempotency-key": "lcs"})
        started = shaped(answer, schemas.Started, 202)
        frames = [frame async for frame in server.stream(started["urls"]["events"])]
        assert frames[-2].json["type"] == "run.completed"

        async def recorded() -> Any:  # sandboxes are recorded a moment after the fact
            run = shaped(await server.get(started["urls"]["self"]), schemas.RunDetail)
            stopped = [sandbox["stopped_at"] for sandbox in run["sandboxes"]]
            return run if len(run["commands"]) >= 2 and all(stopped) else None

        run = await until(recorded, "the records of sandboxes")
        result = run["result"]
        assert result["passed"], result
        assert result["attempts"] == 2  # its first answer is wrong, and the tests say so
        assert run["input"]["max_attempts"] == 3
        assert Decimal(run["input"]["budget"]) == Decimal("0.50")
        assert run["totals"]["calls"] == len(run["calls"]) >= 3
        assert run["totals"]["cost_is_complete"]
        steps = {step["key"]: step["name"] for step in run["steps"]}
        assert {steps[call["step_key"]] for call in run["calls"]} == {
            "generate_code",
            "generate_tests",
        }
        tested = {command["step_key"] for command in run["commands"]}
        assert {steps[key] for key in tested} == {"run_tests"} and len(tested) == 2
        assert {sandbox["step"] for sandbox in run["sandboxes"]} >= {"run_tests"}
        again = await server.post("/api/evaluate", body, headers={"idempotency-key": "lcs"})
        assert (again.status, again.json["id"]) == (200, run["id"])
        other = {**body, "prompt": "Write is_palindrome"}
        refused = await server.post("/api/evaluate", other, headers={"idempotency-key": "lcs"})
        assert (refused.status, refused.error["kind"]) == (422, "RunMismatch")


@pytest.mark.timeout(1200)
async def test_fifty_tasks_sent_at_once_all_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not await sandbox_works():
        pytest.skip("no sandbox works here")
    async with running(tmp_path / "store.db") as server:
        body = {"prompt": "Write is_palindrome", "model": "scripted/demo"}
        answers = await asyncio.gather(*(server.post("/api/evaluate", body) for _ in range(50)))
        ids = {shaped(answer, schemas.Started, 202)["id"] for answer in answers}
        assert len(ids) == 50

        async def ended() -> (
            bool
        ):  # one question: fifty of them would keep the server from the work
            listed = (await server.get("/api/runs?status=completed&limit=100")).json["runs"]
            return {run["id"] for run in listed} >= ids

        await until(ended, "fifty verdicts", seconds=1100)
        runs = [(await server.get(f"/api/runs/{id}")).json for id in ids]
    assert all(run["result"]["passed"] for run in runs)
