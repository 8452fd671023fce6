"""Several workers on one task queue, with PostgreSQL as the store beside Temporal."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import dev_server
import engine_flows as flows
import pytest
from test_engines import is_open, until

import postgres_server
from holdfast import open_engine, send_event, start


def worker(folder: Path, store: str, address: str, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "holdfast.cli.main", "worker", flows.__file__, "--json"]
    settings = {"HOLDFAST_TEMPORAL_STICKY_SECONDS": "1", "HOLDFAST_TEMPORAL_HEARTBEAT_SECONDS": "3"}
    with (folder / name).open("wb") as out:
        return subprocess.Popen(
            [*command, "--store", store, "--engine", address],
            cwd=folder,
            stdout=out,
            text=True,
            env={**os.environ, **settings},
        )


def told(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


pytestmark = pytest.mark.skipif(postgres_server.programs() is None, reason=postgres_server.MISSING)


def test_workers_share_a_queue_and_one_that_dies_is_not_missed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = dev_server.shared().url()
    store = postgres_server.fresh_url()
    workers = [worker(tmp_path, store, address, name) for name in ("one", "two")]

    async def both_work() -> bool:
        return all(told(tmp_path / name) for name in ("one", "two"))

    async def case() -> None:
        await until(both_work)
        async with open_engine(store, worker=False):
            handles = [await start(flows.pauses, f"shared {i}") for i in range(4)]
            for i, handle in enumerate(handles):
                await until(lambda handle=handle, i=i: is_open(handle, f"shared {i} 0"))
            workers[0].send_signal(signal.SIGKILL)
            for n in range(3):
                for i in range(4):
                    await send_event(f"shared {i} {n}")
            assert [await handle.result() for handle in handles] == [3] * 4
            for handle in handles:
                types = [event.type for event in await handle.events()]
                assert types.count("step.completed") == types.count("wait.received") == 3

    try:
        asyncio.run(case())
        # Lines of steps, by the worker that carries the run on.
        steps = [line["step"]["name"] for line in told(tmp_path / "two") if "step" in line]
        assert "add" in steps
        workers[1].send_signal(signal.SIGTERM)
        assert workers[1].wait(240) == 0
    finally:
        for each in workers:
            each.kill()
            each.wait()
