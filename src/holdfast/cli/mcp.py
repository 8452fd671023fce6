"""`holdfast mcp`: runs, approvals and sandboxes as tools for an MCP client, over its pipes.

A coding assistant that is configured with this command starts runs, looks at them, steers them and
runs code in a sandbox. What it may do is chosen where it is started, not by what it says of itself:
`--read-only` leaves the tools that change something out, and approvals are decided by people unless
`--allow-approvals` is given. Results are the JSON that the other commands print with `--json`.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

from holdfast import __version__
from holdfast.cli import output, run_text
from holdfast.cli.config import check_configuration
from holdfast.cli.options import add_common, add_grace, add_modules, grace_seconds, store_name
from holdfast.cli.store import find_run
from holdfast.cli.tracing import tracing
from holdfast.cli.worker import stopped_by_signals
from holdfast.cli.workflow_files import load, load_agents
from holdfast.errors import HoldfastError, UsageError
from holdfast.records import Status
from holdfast.runtime import client
from holdfast.runtime.app import open_engine
from holdfast.runtime.definitions import find_workflow, registered
from holdfast.runtime.engine import Engine
from holdfast.runtime.forking import UNCHANGED
from holdfast.store.base import RunFilter

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

Tool = Callable[..., Awaitable[dict[str, Any]]]

LONGEST_WAIT = 300.0
"""Seconds of one `wait_for_run`; clients give up on a tool that answers later."""
MOST_OUTPUT = 64 * 1024
"""Characters of each stream of a command that an answer has."""
INSTRUCTIONS = """\
Holdfast carries out durable runs: a run survives the end of this process and goes on from its last
finished step. start_run and write_code return at once with the run's id; wait_for_run and show_run
tell what became of it. A failed run is retried from where it failed, or forked from one of its
steps (their keys are in show_run). run_in_sandbox runs a command isolated from this machine,
without a network."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_modules(parser)
    parser.add_argument("--read-only", action="store_true", help="only the tools that look")
    parser.add_argument(
        "--allow-approvals",
        action="store_true",
        help="let the client approve and reject, too; without it, people do",
    )
    parser.add_argument(
        "--no-worker", action="store_true", help="carry out no runs here: leave them to workers"
    )
    add_grace(parser, "server")
    add_common(parser, _mcp)


def _mcp(options: argparse.Namespace) -> int:
    try:
        import mcp.server.mcpserver  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise UsageError("the MCP server needs the SDK", hint="pip install 'mcp>=2'") from error
    if options.read_only and options.allow_approvals:
        raise UsageError("--read-only and --allow-approvals contradict each other")
    check_configuration()
    load_agents()
    for named in options.modules:
        load(named)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    signalled = asyncio.run(_serve(options))
    if signalled:
        # The thread that reads the client's next line can't be told to stop.
        sys.stderr.flush()
        os._exit(0)
    return 0


async def _serve(options: argparse.Namespace) -> bool:
    """Serve until the client hangs up (False) or a signal comes (True)."""
    stop = stopped_by_signals()
    works = not (options.no_worker or options.read_only)
    grace = grace_seconds(options)
    store = store_name(options)
    async with open_engine(store, worker=works, grace=grace) as engine, tracing(engine):
        tools = Tools(engine)
        served = tools.server(looking=options.read_only, deciding=options.allow_approvals)
        serving = asyncio.ensure_future(served.run_stdio_async())
        output.note(f"holdfast mcp on {engine.store.name}; Ctrl-C, or hanging up, stops it")
        await asyncio.wait([serving, stop], return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
            return False
    return True


def _told(tool: Tool) -> Tool:
    """Our errors reach the client in words, with the hint; others are the server's to report."""
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(tool)
    async def telling(*args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return await tool(*args, **kwargs)
        except HoldfastError as error:
            hint = f" (hint: {error.hint})" if error.hint else ""
            raise ToolError(f"{error.kind}: {error.message}{hint}") from error

    return telling


class Tools:
    """What the client may call. Names, arguments and texts are read by a model."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._store = engine, engine.store

    def server(self, *, looking: bool, deciding: bool) -> MCPServer[Any]:
        """A server with the tools that only look, or with all; and with deciding, if that is on."""
        from mcp.server.mcpserver import MCPServer
        from mcp.types import ToolAnnotations

        made: MCPServer[Any] = MCPServer(
            "holdfast", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING"
        )
        looks = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        acts = ToolAnnotations(read_only_hint=False, destructive_hint=False)
        ends = ToolAnnotations(read_only_hint=False, destructive_hint=True)
        offered: list[tuple[Tool, ToolAnnotations]] = [
            (self.list_workflows, looks),
            (self.list_runs, looks),
            (self.show_run, looks),
            (self.wait_for_run, looks),
            (self.list_approvals, looks),
        ]
        if not looking:
            offered += [
                (self.start_run, acts),
                (self.write_code, acts),
                (self.pause_run, acts),
                (self.resume_run, acts),
                (self.retry_run, acts),
                (self.fork_run, acts),
                (self.cancel_run, ends),
                (self.send_event, acts),
                (self.run_in_sandbox, acts),
            ]
        if deciding:
            offered.append((self.decide_approval, ends))
        for tool, hints in offered:
            made.add_tool(_told(tool), annotations=hints, structured_output=True)
        return made

    # --- looking ---

    async def list_workflows(self) -> dict[str, Any]:
        """The workflows that runs can be started of, each with its description and input schema."""
        known = [registered()[name] for name in sorted(registered())]
        return {
            "workflows": [
                {
                    "name": each.name,
                    "description": each.function.__doc__,
                    "input": each.signature.schema(),
                }
                for each in known
            ]
        }

    async def list_runs(
        self, workflow: str | None = None, status: Status | None = None, limit: int = 20
    ) -> dict[str, Any]:
        """Runs, newest first: of one workflow, or in one state, if that is given."""
        where = RunFilter(workflow=workflow, status=() if status is None else (status,))
        page = await self._store.list_runs(where, min(max(limit, 1), 200), None)
        return {"runs": [run.as_json() for run in page.runs], "more": page.cursor is not None}

    async def show_run(self, run: str) -> dict[str, Any]:
        """A run with its input, steps (names, keys, outcomes) and its result or error.

        `run`: an id, the beginning of one, or "latest".
        """
        found = await find_run(self._store, run)
        return run_text.run_json(found, await self._store.load(found.id))

    async def wait_for_run(self, run: str, seconds: float = 60) -> dict[str, Any]:
        """Wait until a run has ended, at most so long, and show it; its status says whether it has.

        Call it again for a run that goes on.
        """
        found = await find_run(self._store, run)
        handle = await client.get_run(found.id)
        try:
            async with asyncio.timeout(min(max(seconds, 0), LONGEST_WAIT)):
                await handle.result()
        except (TimeoutError, HoldfastError):
            pass  # what is shown says how it stands
        return await self.show_run(found.id)

    async def list_approvals(self) -> dict[str, Any]:
        """What runs wait for people to decide, with the exact arguments that would be used."""
        from holdfast.loop.approval_decisions import list_approvals

        return {"approvals": [each.as_json() for each in await list_approvals()]}

    # --- acting ---

    async def start_run(
        self, workflow: str, input: dict[str, Any] | None = None, key: str | None = None
    ) -> dict[str, Any]:
        """Start a run of a workflow; returns its id at once.

        `key`: one run per workflow and key, so that the same call again starts nothing new.
        """
        found = find_workflow(workflow).options(key=key)
        text = json.dumps(input or {}, ensure_ascii=False).encode()
        created = await client.create_run(self._engine, found, text, same_input=True)
        return {**created.run.as_json(), "existed": created.existed}

    async def write_code(
        self,
        task: str,
        language: Literal["python", "javascript", "typescript"] = "python",
        model: str | None = None,
        attempts: int | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Have a program written from a task in plain words, with tests that were run in a sandbox.

        Returns the run's id at once; the result, once it has ended, has the code, its tests and
        whether they passed.
        """
        from holdfast.agents.settings import code_settings

        input: dict[str, Any] = {"prompt": task, "language": language, "model": model}
        input["max_attempts"] = attempts or code_settings().attempts
        return await self.start_run("evaluate_code", input, key)

    async def cancel_run(self, run: str) -> dict[str, Any]:
        """Ask a run to stop; its clean-up still runs."""
        return await self._steered(run, lambda handle: handle.cancel())

    async def pause_run(self, run: str) -> dict[str, Any]:
        """Let the steps under way finish and begin nothing new."""
        return await self._steered(run, lambda handle: handle.pause())

    async def resume_run(self, run: str) -> dict[str, Any]:
        """Let a paused or stuck run go on."""
        return await self._steered(run, lambda handle: handle.resume())

    async def retry_run(self, run: str) -> dict[str, Any]:
        """Let a failed run go on from where it failed; what succeeded is not done again."""
        return await self._steered(run, lambda handle: handle.retry())

    async def _steered(
        self, run: str, act: Callable[[client.RunHandle[Any]], Awaitable[None]]
    ) -> dict[str, Any]:
        handle = await client.get_run((await find_run(self._store, run)).id)
        await act(handle)
        return (await handle.record()).as_json()

    async def fork_run(
        self,
        run: str,
        step: str | None = None,
        input: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Start a new run from what another did before a step.

        `step`: the key of the step to go on from, as show_run has it; without one the run begins
        anew. `input`: arguments to replace, of the step or of the run.
        """
        handle = await client.get_run((await find_run(self._store, run)).id)
        forked = await handle.fork(step, input=input, result=UNCHANGED)
        return (await forked.record()).as_json()

    async def send_event(
        self, name: str, payload: Any = None, id: str | None = None, run: str | None = None
    ) -> dict[str, Any]:
        """Send an event to the runs that wait for it, or to one run.

        `id`: an event with the same id again is not delivered again.
        """
        where = None if run is None else (await find_run(self._store, run)).id
        is_new = await client.send_event(name, payload, id=id, run=where)
        return {"name": name, "repeated": not is_new}

    async def decide_approval(
        self, approval: str, approved: bool, note: str = ""
    ) -> dict[str, Any]:
        """Approve or reject what a run waits for; it counts once, and the run goes on."""
        from holdfast.loop.approval_decisions import decide

        return (await decide(approval, approved, by="an MCP client", note=note)).as_json()

    async def run_in_sandbox(
        self,
        command: list[str],
        files: dict[str, str] | None = None,
        runtime: Literal["python", "node"] = "python",
        timeout: float = 60,
    ) -> dict[str, Any]:
        """Run a command in a new sandbox, isolated from this machine and without a network.

        `command`: the program and its arguments, as ["python", "main.py"]. `files`: texts by their
        paths, written to the working folder first. `runtime`: what is installed in it.
        """
        from holdfast.sandbox import Sandbox

        limit = min(max(timeout, 1), LONGEST_WAIT)
        async with await Sandbox.create(runtime=runtime, timeout=limit + 30) as sandbox:
            await sandbox.write_files(files or {})
            result = await sandbox.run(*command, timeout=limit)
            return {
                "ended": result.ended.value,
                "exit_code": result.exit_code,
                "stdout": _cut(result.stdout),
                "stderr": _cut(result.stderr),
                "seconds": round(result.seconds, 3),
                "isolation": sandbox.record.isolation,
            }


def _cut(text: str) -> str:
    """The end of what was written, where it is too much for an answer."""
    if len(text) <= MOST_OUTPUT:
        return text
    return f"… ({len(text) - MOST_OUTPUT:,} characters before this)\n{text[-MOST_OUTPUT:]}"
