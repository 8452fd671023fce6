"""Tools from real MCP servers: a program over its pipes, and a server over HTTP on loopback."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, UsageError, open_engine, start, workflow
from holdfast.errors import ToolSourceLost
from holdfast.gateway import Say, ScriptedModel
from holdfast.loop import McpServer
from holdfast.testing import Harness

SERVER = str(Path(__file__).parent / "mcp_server.py")


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


@pytest.fixture
async def program(notes: Path) -> AsyncIterator[McpServer]:
    """A server that is started when needed."""
    env = {"NOTES": str(notes)}
    async with McpServer.stdio(sys.executable, SERVER, env=env, name="tools") as made:
        yield made


@pytest.fixture
def url(notes: Path) -> Iterator[str]:
    """Where a server of its own listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, SERVER, "http", str(port)],
        env={**os.environ, "NOTES": str(notes)},
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.02)
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.wait()


SCRIPT = [
    Say(tools=[("add", {"a": 2, "b": 3}), ("fail", {}), ("add", {"a": "x"})]),
    "ready",
]


async def check(server: McpServer, notes: Path) -> None:
    with ScriptedModel("mcp", SCRIPT) as model:
        result = await Agent("scripted/mcp", tools=[server]).run("go")
    told = [(run.status, run.text) for run in result.steps[0].tools]
    assert told[0] == ("done", "5")
    assert told[1] == ("failed", "Error executing tool fail")
    assert told[2][0] == "failed"
    asked = {tool.name: tool for tool in model.requests[0].tools}
    assert list(asked) == ["add", "pay", "fail"]
    assert asked["add"].description == "Add two numbers."
    assert asked["add"].schema["required"] == ["a", "b"]
    assert notes.read_text() == "add 2 3\n"


async def test_tools_of_a_program(program: McpServer, notes: Path):
    await check(program, notes)


async def test_tools_of_a_server_over_http(url: str, notes: Path):
    async with McpServer.http(url, headers={"X-Team": "support"}) as server:
        await check(server, notes)


async def test_in_a_workflow_listing_and_calling_are_steps(program: McpServer, notes: Path):
    with ScriptedModel("mcp", [Say(tools=[("add", {"a": 2, "b": 3})]), "ready"]):

        @workflow
        async def flow() -> str:
            return (await Agent("scripted/mcp", tools=[program]).run("go")).output

        async with Harness(replay_always=True):
            run = await start(flow)
            assert await run.result() == "ready"
            names = [each.name for each in await run.steps() if each.kind == "step"]
    asked = "generate_text scripted/mcp"
    assert names == ["list tools of tools", asked, "tool add", asked]
    assert notes.read_text() == "add 2 3\n"


async def test_a_call_that_its_server_dies_of_has_an_unknown_outcome(
    program: McpServer, notes: Path
):
    script: list[Any] = [
        Say(tools=[("pay", {"amount": 13})]),
        Say(tools=[("add", {"a": 1, "b": 1})]),
        "ready",
    ]
    with ScriptedModel("mcp", script):
        result = await Agent("scripted/mcp", tools=[program]).run("go")
    (paid,), (added,) = result.steps[0].tools, result.steps[1].tools
    assert paid.status == "unknown" and "Outcome unknown" in paid.text
    assert (added.status, added.text) == ("done", "2"), "the next call has a new server"
    assert notes.read_text() == "pay 13\nadd 1 1\n"


async def test_a_servers_hints_count_only_if_it_is_trusted(program: McpServer, notes: Path):
    untrusted = {each.name: each.idempotent for each in await program.tools()}
    assert untrusted == {"add": False, "pay": False, "fail": False}
    env = {"NOTES": str(notes)}
    more: dict[str, Any] = {"trust_hints": True, "only": ["add", "pay"], "prefix": "till_"}
    async with McpServer.stdio(sys.executable, SERVER, env=env, **more) as trusted:
        found = {each.name: each.idempotent for each in await trusted.tools()}
    assert found == {"till_add": True, "till_pay": False}


async def test_what_a_server_does_not_have_is_refused(notes: Path):
    env = {"NOTES": str(notes)}
    async with McpServer.stdio(sys.executable, SERVER, env=env, only=["steal"]) as server:
        with pytest.raises(UsageError, match="has no tool steal"):
            await server.tools()


async def test_a_server_that_is_not_there_is_said_so():
    async with McpServer.stdio(sys.executable, "-c", "raise SystemExit(1)", name="gone") as server:
        with pytest.raises(ToolSourceLost, match="gone can't be reached"):
            await server.tools()


async def test_a_program_ends_with_the_store_it_was_started_for(tmp_path: Path, notes: Path):
    code = f"import os; open({str(notes)!r}, 'a').write(str(os.getpid())); exec(open({SERVER!r}).read())"
    server = McpServer.stdio(sys.executable, "-c", code, env={"NOTES": str(notes)}, name="tools")
    with ScriptedModel("mcp", ["ready"]):

        @workflow
        async def flow() -> str:
            return (await Agent("scripted/mcp", tools=[server]).run("go")).output

        async with open_engine(tmp_path / "store.db"):
            assert await (await start(flow)).result() == "ready"
            pid = int(notes.read_text())
            os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
