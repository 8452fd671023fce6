"""Why a run waits, as the API, the pages and the command line tell; and starts that are refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import RateLimit, Throttle, workflow
from holdfast.cli.main import main
from holdfast.server import schemas

from .conftest import Server
from .test_api import ended, shaped, started


@workflow(name="throttled_job", throttle=Throttle(1, per="1h", key="customer", per_key=1))
async def throttled_job(customer: str) -> str:
    return customer


@workflow(name="limited_job", rate_limit=RateLimit(1, per="1h"))
async def limited_job() -> None: ...


async def test_a_throttled_run_says_behind_how_many_it_is_and_when_the_next_begins(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [await started(server, "throttled_job", customer="acme") for _ in range(3)]
    await ended(server, runs[0])
    detail = shaped(await server.get(f"/api/runs/{runs[2]}"), schemas.RunDetail)
    queue = detail["queue"]
    assert (detail["status"], queue["why"], queue["ahead"], queue["lane"]) == (
        "queued", "rate", 1, "acme",
    )  # fmt: skip
    assert queue["next_at"] > detail["created_at"]
    words = "queued behind 1 of key acme, next slot in"
    for page in (f"/runs/{runs[2]}", "/runs"):
        assert words in (await server.get(page)).text
    assert shaped(await server.get(f"/api/runs/{runs[0]}"), schemas.RunDetail)["queue"] is None
    store = str(Path(server.engine.store.name))
    assert await asyncio.to_thread(main, ["runs", "show", runs[2], "--store", store]) == 0
    assert words in capsys.readouterr().out


async def test_a_start_too_many_is_told_when_to_come_again(server: Server) -> None:
    assert (await server.post("/api/workflows/limited_job/runs", {})).status == 202
    refused = await server.post("/api/workflows/limited_job/runs", {"priority": "5m"})
    assert (refused.status, refused.error["kind"]) == (429, "TooManyRequests")
    assert 0 < int(refused.headers["Retry-After"]) <= 3600
