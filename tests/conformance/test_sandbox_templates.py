"""Templates, workspaces, metadata and rules that change: what every backend must do."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import pytest

from holdfast.errors import NotFound, Refused, SandboxError, UsageError
from holdfast.sandbox import AllowedHost, Host, Sandbox, Workspace, WorkspaceState
from holdfast.sandbox.templates import TemplateBuilder, list_templates, prune_templates
from sandbox import support
from sandbox.fixtures import backend, sandbox_state
from sandbox.support import observed, serving, shared_host
from waiting import LIMIT

__all__ = ["backend", "sandbox_state"]


async def create(backend: str, **options: Any) -> Sandbox:
    return await support.create(backend, timeout=LIMIT, **options)


def template(backend: str, name: str) -> TemplateBuilder:
    return Sandbox.template(f"{name}-{backend}", backend=backend, host=shared_host())  # type: ignore[arg-type]


# ----------------------------------------------------------------------------- templates


async def test_a_template_is_built_once_and_started_from_by_its_name(backend: str) -> None:
    steps = template(backend, "data").files({"a.txt": "1"}).run("sh", "-c", "echo made > b.txt")
    with observed(shared_host()) as told:
        first, second = await asyncio.gather(steps.save(), steps.save())
        assert first == second and first.version == 1
        assert len(told.sandboxes) == 1  # asked for twice at once, built once
    name = f"template:data-{backend}"
    async with await create(backend, source=name) as sandbox:
        assert await sandbox.read_text("a.txt") == "1"
        assert await sandbox.read_text("b.txt") == "made\n"
        assert sandbox.record.source == first.snapshot_id
    changed = await template(backend, "data").files({"a.txt": "2"}).save()
    assert changed.version == 2 and changed.digest != first.digest
    assert await steps.save() == first
    async with await create(backend, source=name) as latest:
        assert await latest.read_text("a.txt") == "2"
    async with await create(backend, source=f"{name}@1") as old:
        assert await old.read_text("a.txt") == "1"
    state = shared_host().state
    assert [t.version for t in list_templates(state, f"data-{backend}")] == [1, 2]
    assert first in prune_templates(state, keep=1)
    assert [t.version for t in list_templates(state, f"data-{backend}")] == [2]
    with pytest.raises(NotFound):
        await create(backend, source=f"{name}@1")
    again = await steps.save()
    assert again.version == 3
    assert {t.name for t in prune_templates(state, keep=0)} >= {f"data-{backend}"}


async def test_a_build_that_fails_says_why_and_leaves_nothing(backend: str) -> None:
    with pytest.raises(SandboxError, match="could not be built") as failed:
        await template(backend, "bad").run("sh", "-c", "echo because >&2; exit 3").save()
    assert failed.value.hint == "because"
    assert list_templates(shared_host().state, f"bad-{backend}") == []
    for wrong in ("", "A", "../x", "a/b", "x" * 65):
        with pytest.raises(UsageError):
            Sandbox.template(wrong, host=shared_host())
    with pytest.raises(UsageError):
        template(backend, "x").install("--index-url=http://elsewhere")
    with pytest.raises(NotFound):
        await create(backend, source="template:none")


# ---------------------------------------------------------------------------- workspaces


async def test_a_workspace_goes_on_from_what_was_kept_and_nothing_else(backend: str) -> None:
    options: dict[str, Any] = {"backend": backend, "host": shared_host(), "timeout": LIMIT}
    async with await Workspace.open(**options) as one:
        await one.sandbox.write_files({"log": "one\n"})
        first = await one.keep()
        await one.sandbox.write_files({"log": "not kept"})
    with pytest.raises(LookupError):
        async with await Workspace.open(first, **options) as failing:
            await failing.sandbox.shell("echo half >> log")
            raise LookupError
    # As it comes back from the journal, in another process of this machine.
    again = WorkspaceState(**asdict(first))
    async with await Workspace.open(again, **options) as two:
        await two.sandbox.shell("echo two >> log")
        second = await two.keep()
    async with await Workspace.open(second, **options) as three:
        assert await three.sandbox.read_text("log") == "one\ntwo\n"
    assert not [s for s in shared_host().sandboxes.values() if s.id == one.sandbox.id]
    second.delete(host=shared_host())
    second.delete(host=shared_host())
    with pytest.raises(NotFound):
        await Workspace.open(second, **options)


# ------------------------------------------------------------------- metadata, live rules


async def test_sandboxes_are_found_by_what_is_said_of_them(backend: str) -> None:
    said = {"user": "ann", "task": backend}
    async with await create(backend, metadata=said) as sandbox, await create(backend):
        host = Host(shared_host().state, pool=0)
        try:
            for looked_for in ({"user": "ann", "task": backend}, {"task": backend}):
                (found,) = await Sandbox.find(looked_for, host=host)
                assert found.id == sandbox.id
            assert await Sandbox.find({"task": backend, "user": "bob"}, host=host) == []
            handle = await Sandbox.get(sandbox.id, host=host)
            assert handle.metadata == said
            handle.release()
        finally:
            await host.aclose()
    assert await Sandbox.find({"task": backend}, host=shared_host()) == []
    with pytest.raises(UsageError):
        await create(backend, metadata={"a": 1})


FETCH = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=20).status)"


async def test_the_rules_of_a_running_sandbox_change(backend: str) -> None:
    with serving() as port:
        rules = [AllowedHost(f"{n}.example", (80,), to=f"127.0.0.1:{port}") for n in "ab"]
        async with await create(backend, network=rules[:1]) as sandbox:

            async def reaches(name: str) -> bool:
                url = f"http://{name}.example/"
                return (await sandbox.run("python", "-c", FETCH, url)).stdout == "200\n"

            assert await reaches("a") and not await reaches("b")
            await sandbox.set_network(rules[1:])
            assert await reaches("b") and not await reaches("a")
            assert sandbox.record.network == ("b.example:80",)
            host = Host(shared_host().state, pool=0)
            try:  # from another process
                handle = await Sandbox.get(sandbox.id, host=host)
                await handle.set_network(rules)
                assert await reaches("a") and await reaches("b")
                handle.release()
            finally:
                await host.aclose()
            await sandbox.set_network(None)
            assert not await reaches("a") and not await reaches("b")
            with pytest.raises(Refused, match="8443"):
                await sandbox.set_network(["c.example:8443"])
        async with await create(backend) as closed:
            with pytest.raises(Refused, match="no network"):
                await closed.set_network(["c.example"])


async def test_a_connection_that_the_new_rules_forbid_is_ended(backend: str) -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    rule = AllowedHost("a.example", (9000,), to=f"127.0.0.1:{port}")
    code = "import socket; s = socket.create_connection(('a.example', 9000)); "
    code += "print(s.recv(5), flush=True); print(s.recv(5))"
    async with server, await create(backend, network=[rule]) as sandbox:
        command = await sandbox.start("python", "-c", code)
        await support.until(lambda: "hello" in command.logs())
        await sandbox.set_network(None)
        result = await command.wait()
        assert result.stdout == "b'hello'\nb''\n" or "Error" in result.stderr


async def test_what_a_sandbox_uses_is_followed_over_time(backend: str) -> None:
    burn = "sum(range(10_000_000))"
    async with await create(backend) as sandbox:
        host = Host(shared_host().state, pool=0)
        try:
            handle = await Sandbox.get(sandbox.id, host=host)
            for each in (sandbox, handle):
                samples = each.follow_usage(every=0.05)
                first = await anext(samples)
                assert (await sandbox.run("python", "-c", burn)).ok
                later = await anext(samples)
                assert later.at > first.at
                assert (later.used.cpu_seconds or 0) > (first.used.cpu_seconds or 0)
            handle.release()
        finally:
            await host.aclose()
        rest = sandbox.follow_usage(every=LIMIT)
        await anext(rest)
        stopping = asyncio.create_task(sandbox.stop())
        with pytest.raises(StopAsyncIteration):  # at once, not at the next look
            await anext(rest)
        await stopping
