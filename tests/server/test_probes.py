"""What probes and monitors are answered, by the server and by a worker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Engine, create_schedule, every, open_engine, start
from holdfast.errors import ServerUnavailable
from holdfast.server.probes import check_ready, probed
from holdfast.store import opener

from .conftest import TOKEN, Server, running
from .jobs import doubling


def numbers(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """As Prometheus itself reads them."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_the_servers_numbers_are_read_by_prometheus(server: Server) -> None:
    await (await start(doubling, 4)).result()
    await create_schedule(doubling, every("1h", name='odd "name"'), 1)
    answer = await server.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = numbers(answer.text)
    assert found["holdfast_runs", (("status", "completed"), ("workflow", "doubling"))] == 1
    assert found["holdfast_workers", ()] == 1
    assert found["holdfast_schedules", (("state", "active"),)] == 1
    assert found["holdfast_events_total", ()] >= 4
    assert found["holdfast_store_bytes", ()] > 0


async def test_readiness_needs_no_token_and_numbers_do(tmp_path: Path) -> None:
    async with running(tmp_path / "store.db", token=TOKEN) as server:
        server.headers.clear()
        assert (await server.get("/readyz")).status == 200
        assert (await server.get("/metrics")).status == 401
        server.headers["authorization"] = f"Bearer {TOKEN}"
        assert (await server.get("/metrics")).status == 200


async def test_a_server_that_is_being_stopped_is_not_ready(server: Server) -> None:
    await server.app.state.feed.close()
    assert (await server.get("/readyz")).status == 503
    assert (await server.get("/healthz")).status == 503


async def test_a_worker_is_probed_until_it_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_engine(path) as engine, aiohttp.ClientSession() as client:
        inspection = opener.inspection(str(path))
        async with probed(engine, inspection, "127.0.0.1", 0) as port:

            async def ask(what: str) -> tuple[int, str]:
                async with client.get(f"http://127.0.0.1:{port}{what}") as reply:
                    return reply.status, await reply.text()

            while (await ask("/readyz"))[0] != 200:  # its lease is renewed at once
                await asyncio.sleep(0.01)
            assert (await ask("/healthz"))[0] == 200
            assert numbers((await ask("/metrics"))[1])["holdfast_workers", ()] == 1
            assert (await ask("/other"))[0] == 404
        inspection.close()
    with pytest.raises(ServerUnavailable, match="being stopped"):
        await check_ready(engine)


async def test_a_worker_whose_lease_is_not_renewed_is_not_ready(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "store.db") as engine:
        hung = SimpleNamespace(
            draining=False,
            works=True,
            renew_at=engine.clock.steady() - engine.settings.lease_seconds - 1.0,
            clock=engine.clock,
            settings=engine.settings,
            store=engine.store,
        )
        with pytest.raises(ServerUnavailable, match="lease"):
            await check_ready(cast("Engine", hung))


async def test_a_full_backlog_refuses_new_runs_until_it_is_shorter(tmp_path: Path) -> None:
    async with running(tmp_path / "store.db", worker=False, max_backlog=2) as server:
        body = {"input": {"number": 1}}
        for _ in range(2):
            assert (
                await server.ask("POST", "/api/workflows/doubling/runs", json=body)
            ).status == 202
        full = await server.ask("POST", "/api/workflows/doubling/runs", json=body)
        assert (full.status, full.error["kind"]) == (503, "Overloaded")
        assert int(full.headers["retry-after"]) >= 1
