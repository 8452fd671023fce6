"""`holdfast mcp`, as the official SDK's client finds it: tools over the pipes of a process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import TextContent

from waiting import LIMIT

FLOWS = '''
from pathlib import Path

from holdfast import approval, step, wait_for_event, workflow

@step(retries=0)
async def fragile(n: int) -> int:
    if not Path("mended").exists():
        raise ValueError("not mended")
    return n * 2

@workflow
async def double(n: int) -> int:
    """Twice a number."""
    return await fragile(n)

@workflow
async def listen(order: int) -> str:
    event = await wait_for_event("paid", match={"order": order}, timeout="1h")
    return event.payload["by"]

@workflow
async def refund(order: int) -> bool:
    decision = await approval("Refund?", arguments={"order": order}, timeout="1h")
    return decision.approved
'''
LOOKING = {"list_workflows", "list_runs", "show_run", "wait_for_run", "list_approvals"}


@asynccontextmanager
async def connected(folder: Path, *words: str) -> AsyncGenerator[ClientSession]:
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "holdfast.cli.main", "mcp", *words, "--store", "runs.db"],
        env=dict(os.environ),
        cwd=str(folder),
    )
    async with stdio_client(command) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield session


async def called(session: ClientSession, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await session.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


async def refused(session: ClientSession, tool: str, **arguments: Any) -> str:
    result = await session.call_tool(tool, arguments)
    assert result.is_error
    (said,) = result.content
    assert isinstance(said, TextContent)
    return said.text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flows.py").write_text(FLOWS)
    return tmp_path


async def test_runs_are_started_waited_for_retried_and_forked(folder: Path) -> None:
    async with connected(folder, "flows.py") as session:
        known = await called(session, "list_workflows")
        described = {each["name"]: each["description"] for each in known["workflows"]}
        assert described["double"] == "Twice a number."
        run = await called(session, "start_run", workflow="double", input={"n": 4}, key="a")
        again = await called(session, "start_run", workflow="double", input={"n": 4}, key="a")
        assert (again["id"], again["existed"], run["existed"]) == (run["id"], True, False)
        failed = await called(session, "wait_for_run", run=run["id"])
        assert failed["status"] == "failed" and "not mended" in failed["error"]
        (folder / "mended").touch()
        await called(session, "retry_run", run=run["id"])
        ended = await called(session, "wait_for_run", run=run["id"])
        assert (ended["status"], ended["result"]) == ("completed", 8)
        forked = await called(session, "fork_run", run=run["id"], input={"n": 5})
        assert (await called(session, "wait_for_run", run=forked["id"]))["result"] == 10
        listed = await called(session, "list_runs", workflow="double", status="completed")
        assert [each["id"] for each in listed["runs"]] == [forked["id"], run["id"]]
        said = await refused(session, "start_run", workflow="duoble")
        assert "UnknownWorkflow" in said and "hint:" in said
        wrong = {"workflow": "double", "input": {"n": "x"}}
        assert "expected double(n: int)" in await refused(session, "start_run", **wrong)
        assert "RunMismatch" in await refused(
            session, "start_run", workflow="double", input={"n": 9}, key="a"
        )


async def test_a_run_that_waits_is_shown_so_woken_and_cancelled(folder: Path) -> None:
    async with connected(folder, "flows.py") as session:
        one = await called(session, "start_run", workflow="listen", input={"order": 1})
        two = await called(session, "start_run", workflow="listen", input={"order": 2})
        shown = await called(session, "wait_for_run", run=one["id"], seconds=0.01)
        assert shown["status"] in ("pending", "running", "waiting")
        sent = {"name": "paid", "payload": {"order": 1, "by": "ada"}, "id": "e1"}
        assert not (await called(session, "send_event", **sent))["repeated"]
        assert (await called(session, "send_event", **sent))["repeated"]
        assert (await called(session, "wait_for_run", run=one["id"]))["result"] == "ada"
        await called(session, "pause_run", run=two["id"])
        await called(session, "resume_run", run=two["id"])
        await called(session, "cancel_run", run=two["id"])
        assert (await called(session, "wait_for_run", run=two["id"]))["status"] == "cancelled"


async def test_a_program_is_written_and_a_command_runs_isolated(folder: Path) -> None:
    async with connected(folder) as session:
        demo = {"task": "Write is_palindrome", "model": "scripted/demo"}
        run = await called(session, "write_code", **demo)
        ran = await called(
            session,
            "run_in_sandbox",
            command=["python", "main.py"],
            files={"main.py": "import sys; print(6 * 7); sys.exit(3)"},
        )
        assert (ran["stdout"], ran["exit_code"], ran["ended"]) == ("42\n", 3, "exited")
        assert ran["isolation"]
        ended = await called(session, "wait_for_run", run=run["id"], seconds=300)
        assert ended["result"]["passed"], ended


async def test_what_a_client_may_do_is_chosen_where_it_is_started(folder: Path) -> None:
    async with connected(folder, "flows.py") as session:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert {n for n, t in tools.items() if t.annotations.read_only_hint} == LOOKING  # type: ignore[union-attr]
        assert "decide_approval" not in tools
        run = await called(session, "start_run", workflow="refund", input={"order": 1})
        while not (waiting := (await called(session, "list_approvals"))["approvals"]):
            await asyncio.sleep(0.05)
        said = await refused(session, "decide_approval", approval=waiting[0]["id"], approved=True)
        assert "decide_approval" in said
    async with connected(folder, "flows.py", "--read-only") as session:
        assert {tool.name for tool in (await session.list_tools()).tools} == LOOKING
    async with connected(folder, "flows.py", "--allow-approvals") as session:
        decision = {"approval": waiting[0]["id"], "approved": True, "note": "small"}
        decided = await called(session, "decide_approval", **decision)
        assert (decided["status"], decided["decided_by"]) == ("approved", "an MCP client")
        assert (await called(session, "wait_for_run", run=run["id"]))["result"] is True


def test_it_ends_when_the_client_hangs_up_or_a_signal_comes(folder: Path) -> None:
    command = [sys.executable, "-m", "holdfast.cli.main", "mcp", "--store", "runs.db"]

    def begun() -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe)
        assert process.stderr is not None and b"holdfast mcp on" in process.stderr.readline()
        return process

    process = begun()
    out, _ = process.communicate(timeout=LIMIT)
    assert (process.returncode, out) == (0, b"")
    process = begun()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=LIMIT) == 0
    for stream in (process.stdin, process.stdout, process.stderr):
        assert stream is not None
        stream.close()
    both = subprocess.run(
        [*command, "--read-only", "--allow-approvals", "--json"],
        cwd=folder,
        capture_output=True,
        check=False,
        timeout=LIMIT,
    )
    assert both.returncode == 2
    assert "contradict" in json.loads(both.stdout)["error"]["message"]
