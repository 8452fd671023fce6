"""Worker processes that run an agent and kill themselves with SIGKILL at a chosen point.

Points are before and after every commit (of the store and of the ledger), and before and after
what a tool does. As in `crash.worker`, a process started with this file as its program forks a
worker for each order. Nothing of this is in the product; it patches from outside.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from waiting import LIMIT

TESTS = Path(__file__).resolve().parents[1]
PATIENCE = 120.0


# --- in the test ---


class Nursery:
    """Raises workers; a handle for tests."""

    def __enter__(self) -> Nursery:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait(LIMIT)
        self._process.stdout.close()

    def live(self, folder: Path, url: str, kill_at: int = 0) -> dict[str, Any]:
        """One worker's life: `killed`, or its `result` (or `error`) and the `points` it passed."""
        assert self._process.stdin and self._process.stdout
        order = {"folder": str(folder), "url": url, "kill_at": kill_at}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


# --- in the process that forks ---


def main() -> None:
    _warm_up()
    for line in sys.stdin:
        order = json.loads(line)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _live(order, writing)
            os._exit(0)
        os.close(writing)
        with open(reading, "rb") as pipe:
            report = pipe.read()
        _, status = os.waitpid(pid, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        print(json.dumps({"killed": True} if killed else json.loads(report)), flush=True)


def _warm_up() -> None:
    """Run everything once, so that no fork has to import and prepare it again."""
    from crash.worker import _Boundaries
    from holdfast.gateway import Say, ScriptedModel

    script = [Say(tools=[("look_up", {"order": "A-1"})]), Say(tools=[("refund", {"order": "x"})])]
    with tempfile.TemporaryDirectory() as folder, ScriptedModel("warm", [*script, "ready"]):
        work = _work(Path(folder), "http://127.0.0.1:1/v1", _Boundaries(0), "scripted/warm")
        asyncio.run(work)
    while threading.active_count() > 1:
        time.sleep(0.005)  # a process with threads must not fork


def _live(order: dict[str, Any], report: int) -> None:
    from crash.worker import _Boundaries, _watch_commits

    points = _Boundaries(order["kill_at"])
    try:
        _watch_commits(points)
        work = _work(Path(order["folder"]), order["url"], points)
        result = asyncio.run(asyncio.wait_for(work, PATIENCE))
        death: dict[str, Any] = {"killed": False, "points": points.count, "result": result}
    except BaseException:  # whatever it is, the test shall see it
        death = {"killed": False, "points": points.count, "error": traceback.format_exc()}
    os.write(report, json.dumps(death).encode())


# --- in the worker ---


def note(folder: Path, line: str) -> None:
    file = os.open(folder / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def effects(folder: Path) -> list[str]:
    path = folder / "effects"
    return path.read_text().splitlines() if path.exists() else []


async def _work(folder: Path, url: str, points: Any, model: str = "fake/model") -> Any:
    from holdfast import Agent, Settings, open_engine, start, tool, workflow
    from holdfast.gateway import Gateway, GatewayConfig, use_gateway

    @tool(idempotent=True)
    async def look_up(order: str) -> str:
        """An order."""
        points.passed()
        return f"{order} cost 40"

    @tool
    async def refund(order: str) -> str:
        """Pay an order back."""
        points.passed()
        note(folder, f"refund {order}")
        points.passed()
        return "refunded"

    @tool(idempotent=True)
    async def count_refunds(order: str) -> int:
        """How often an order was paid back."""
        return effects(folder).count(f"refund {order}")

    @workflow(name="killed-agent")
    async def flow() -> str:
        agent = Agent(model, "You refund.", [look_up, refund, count_refunds])
        return (await agent.run("Refund A-1.")).output

    config = {
        "providers": {"fake": {"base_url": url, "formats": ["chat"]}},
        "prices": {"fake/*": {"input": 1, "output": 2}},
    }
    settings = Settings(crash_limit=10_000, sweep_seconds=0.05)
    async with open_engine(folder / "store.db", settings=settings):
        gateway = Gateway(GatewayConfig.from_dict(config), environ={})
        use_gateway(gateway)
        try:
            return await (await start(flow.options(key="the run"))).result()
        finally:
            await gateway.close()


if __name__ == "__main__":
    main()
