"""Command-line coding agents of others, run inside a sandbox in the place of ours.

Such an agent reaches nothing but the gateway, by a name that only the sandbox's proxy knows, and
holds no key: the proxy adds one, made for this run alone and revoked after. So its spend is
counted against the run's budget, and whatever it is talked into, there is nothing to steal.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

import uvicorn

from holdfast.agents.command_output import both_ends
from holdfast.agents.repo.records import Base, Patch, Plan
from holdfast.agents.repo.workspace import ROOT, Workspace
from holdfast.errors import RunError
from holdfast.gateway import Gateway, create_key
from holdfast.gateway.service import server
from holdfast.sandbox import AllowedHost, Ended, Network

GATEWAY = "gateway.holdfast"
"""What the gateway is called inside; no such name is anywhere else."""
PLACEHOLDER = "held-outside-the-sandbox"
_MOST_SAID = 4000
_SPARE = 120.0


async def work(
    gateway: Gateway,
    run_id: str,
    base: Base,
    plan: Plan,
    patches: tuple[Patch, ...],
    command: str,
    task: str,
    seconds: float,
) -> tuple[str, tuple[str, Patch] | None]:
    """Run the command in a fresh workspace: what it said at the end, and what it changed."""
    async with _reachable(gateway, run_id, seconds) as network:
        workspace = await Workspace.open(
            base, plan, patches, seconds=seconds + _SPARE, network=network, env=_env(plan, task)
        )
        async with workspace.sandbox:
            line, stdin = _line(command, task)
            result = await workspace.sandbox.shell(
                f"exec 2>&1\n{line}", cwd=ROOT, stdin=stdin, timeout=seconds, max_output="8mb"
            )
            said = both_ends(result.stdout.strip(), _MOST_SAID)
            if result.ended is not Ended.EXITED:
                said = f"{said}\n[{result.ended.replace('_', ' ')}]".strip()
            elif result.exit_code:
                said = f"{said}\n[exit code {result.exit_code}]".strip()
            if not workspace.sandbox.running:
                return said, None
            return said, await workspace.changes()


def _line(command: str, task: str) -> tuple[str, str]:
    """The command with the task in its place, and what it reads: the task, if it has no place."""
    if "{task}" in command:
        return command.replace("{task}", shlex.quote(task)), ""
    return command, task


def _env(plan: Plan, task: str) -> dict[str, str]:
    base = f"http://{GATEWAY}"
    env = {
        "OPENAI_BASE_URL": f"{base}/v1",
        "OPENAI_API_KEY": PLACEHOLDER,
        "ANTHROPIC_BASE_URL": base,
        "ANTHROPIC_API_KEY": PLACEHOLDER,
        "HOLDFAST_TASK": task,
        "CI": "true",
        "NO_COLOR": "1",
    }
    if plan.model:
        env |= dict.fromkeys(("HOLDFAST_MODEL", "OPENAI_MODEL", "ANTHROPIC_MODEL"), plan.model)
    return env


@asynccontextmanager
async def _reachable(gateway: Gateway, run_id: str, seconds: float) -> AsyncGenerator[Network]:
    """The gateway on this machine's loopback, and a network that leads to it alone."""
    listener = server.bind("127.0.0.1", 0)
    port: int = listener.getsockname()[1]
    made = await create_key(
        gateway.ledger, name=f"coding agent of {run_id}", run_id=run_id, expires_in=seconds + _SPARE
    )
    config = server.make_server(gateway, host="127.0.0.1", open_to_all=False).config
    serving = _Server(config)
    task = asyncio.get_running_loop().create_task(serving.serve(sockets=[listener]))
    try:
        while not serving.started:
            if task.done():
                raise RunError("the gateway could not be served") from task.exception()
            await asyncio.sleep(0.01)
        headers = {"authorization": f"Bearer {made.secret}", "x-api-key": made.secret}
        yield Network([AllowedHost(GATEWAY, (80,), headers, to=f"127.0.0.1:{port}")])
    finally:
        await gateway.ledger.revoke_key(made.key.id, time.time())
        serving.should_exit = True
        await asyncio.shield(task)


class _Server(uvicorn.Server):
    """uvicorn, with signals left to the process."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
