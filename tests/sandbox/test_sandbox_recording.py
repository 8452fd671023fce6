"""What sandboxes do is in the store of the runs, and a run that ended has no sandbox."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import (
    FatalError,
    open_engine,
    send_event,
    session,
    sleep,
    start,
    step,
    wait_for_event,
    workflow,
)
from holdfast.errors import RunCancelled, RunFailed
from holdfast.records.sandboxes import PROCESS_DIED
from holdfast.sandbox import AllowedHost, Host, Network, Sandbox, StoreObserver
from holdfast.sandbox.command_table import TAIL, tail
from holdfast.sandbox.recording import shown
from holdfast.store.sandboxes import SandboxFilter
from holdfast.store.sqlite.sandboxes import SqliteSandboxRecords
from sandbox.support import serving, shared_host, until

SECRET = "Bearer 5e5a-not-for-the-record"


@pytest.fixture
async def host(sandbox_state: str) -> AsyncIterator[Host]:
    """A host that records, as the default one does."""
    host = shared_host()
    observer = StoreObserver()
    host.observers.append(observer)
    yield host
    host.observers.remove(observer)
    await asyncio.to_thread(observer.close)


def make(**options: object) -> asyncio.Future[Sandbox]:
    return Sandbox.create(backend="namespace", host=shared_host(), timeout=60, **options)  # pyright: ignore


@step
async def begin() -> str:
    sandbox = await make()
    await sandbox.shell("echo one; echo two >&2; exit 3")
    return sandbox.id


@step
async def go_on(id: str) -> str:
    sandbox = await Sandbox.get(id, host=shared_host())
    return (await sandbox.shell("cat /workspace/kept || echo new > /workspace/kept")).stdout


@step
async def fail(id: str) -> None:
    assert (await Sandbox.get(id, host=shared_host())).running
    raise FatalError("on purpose")


@workflow
async def keeps_one_over_two_steps() -> tuple[str, str]:
    id = await begin()
    await go_on(id)
    return id, await go_on(id)


@workflow
async def leaves_one_and_fails() -> None:
    await fail(await begin())


@workflow
async def leaves_one_and_waits() -> None:
    await begin()
    await wait_for_event("never", timeout="1h")


@workflow
async def leaves_one_and_sleeps() -> None:
    await begin()
    await sleep("1h")


async def test_a_sandbox_and_its_commands_are_on_record_against_run_and_step(
    host: Host, tmp_path: Path
) -> None:
    path = tmp_path / "a.db"
    async with open_engine(path):
        run = await start(keeps_one_over_two_steps)
        id, said = await run.result()
        assert said == "new\n"  # it lived on from step to step
        await until(lambda: id not in host.sandboxes)  # and not longer than its run
    records = SqliteSandboxRecords(path)
    (box,) = (await records.list(SandboxFilter(run_id=run.id))).sandboxes
    assert (box.id, box.workflow, box.step) == (id, "keeps_one_over_two_steps", "begin")
    assert box.stopped_because == "its run ended"
    commands = (await records.commands(run_id=run.id)).commands
    assert [c.step for c in commands] == ["begin", "go_on", "go_on"]
    assert len({c.step_key for c in commands}) == 3
    assert commands[0].step_key == box.step_key
    first = commands[0]
    assert (first.ended, first.exit_code) == ("exited", 3)
    assert (first.stdout_tail, first.stderr_tail) == ("one\n", "two\n")
    assert (first.stdout_bytes, first.stdout_cut) == (4, 0)
    assert first.ended_at is not None and first.ended_at >= first.started_at
    of_step = await records.commands(run_id=run.id, step_key=commands[2].step_key)
    assert of_step.commands == [commands[2]]
    await records.close()


@pytest.mark.parametrize("how", ["failed", "cancelled"])
async def test_a_run_that_ended_has_no_sandbox(host: Host, tmp_path: Path, how: str) -> None:
    async with open_engine(tmp_path / "a.db"):
        if how == "failed":
            run = await start(leaves_one_and_fails)
            with pytest.raises(RunFailed):
                await run.result()
        else:
            run = await start(leaves_one_and_waits)
            await until(lambda: run.id in host.runs())
            await run.cancel()
            with pytest.raises(RunCancelled):
                await run.result()
        await until(lambda: run.id not in host.runs())
    records = SqliteSandboxRecords(tmp_path / "a.db")
    (box,) = (await records.list()).sandboxes
    assert box.stopped_because == "its run ended"
    await records.close()


async def test_a_run_that_is_put_aside_as_stuck_has_no_sandbox(host: Host, tmp_path: Path) -> None:
    @step
    async def other() -> None:
        pass

    called = 0

    @workflow
    async def changes_its_mind() -> None:
        nonlocal called
        called += 1
        await begin()
        if called > 1:
            await other()
        await sleep("1h")

    async with open_engine(tmp_path / "a.db") as engine:
        run = await start(changes_its_mind)
        await until(lambda: (engine.runs[run.id].due_at or 0) > time.time() + 1800)  # it sleeps
        assert run.id in host.runs()
        await run.pause()
        while (await run.status()) != "paused":
            await asyncio.sleep(0.01)
        assert run.id in host.runs()  # paused is not ended
        await run.resume()
        await until(lambda: run.id not in host.runs())
        assert await run.status() == "stuck"


async def test_a_run_ended_by_another_process_has_no_sandbox_here(
    host: Host, tmp_path: Path
) -> None:
    path = tmp_path / "a.db"
    async with open_engine(path) as engine:
        run = await start(leaves_one_and_sleeps)
        await until(lambda: run.id in host.runs())
        active = engine.runs[run.id]
        await until(lambda: active.idle)
        await engine._give_back(
            active, active.leave()
        )  # as it does by itself after a while of waiting
        other = "from holdfast.cli.main import main; import sys; sys.exit(main(sys.argv[1:]))"
        words = [sys.executable, "-c", other, "runs", "cancel", run.id, "--store", str(path)]
        done = await asyncio.to_thread(subprocess.run, words, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        await until(lambda: run.id not in host.runs())


async def test_a_cancelled_step_takes_its_sandbox_and_command_along(
    host: Host, tmp_path: Path
) -> None:
    ids: list[str] = []

    @step
    async def takes_long() -> None:
        async with await make() as sandbox:
            ids.append(sandbox.id)
            await sandbox.run("sleep", "600")

    @workflow
    async def gives_up() -> str:
        task = asyncio.create_task(takes_long())
        await wait_for_event("enough", timeout="1h")
        task.cancel()
        await wait_for_event("over", timeout="1h")
        return "gave up"

    path = tmp_path / "a.db"
    async with open_engine(path):
        run = await start(gives_up)
        records = SqliteSandboxRecords(path)
        while not (await records.commands(run_id=run.id)).commands:
            await asyncio.sleep(0.01)
        await send_event("enough", run=run.id)
        await until(lambda: ids[0] not in host.sandboxes)
        assert await run.status() != "completed"
        await send_event("over", run=run.id)
        assert await run.result() == "gave up"
    (command,) = (await records.commands(run_id=run.id)).commands
    assert command.ended == "stopped"
    (box,) = (await records.list()).sandboxes
    assert box.stopped_because == "stopped"
    await records.close()


async def in_a_process(
    script: str, code: int, state: str, *arguments: str, **variables: str
) -> str:
    env = {"HOLDFAST_SANDBOX_DIR": state, "PATH": "/usr/bin:/bin", **variables}
    words = [sys.executable, "-c", script, *arguments]
    done = await asyncio.to_thread(
        subprocess.run, words, capture_output=True, text=True, env=env, check=False, timeout=60
    )
    assert done.returncode == code, done.stderr
    return done.stdout


LEFT_BY_A_THREAD = """
import asyncio, sys
from holdfast import open_engine, start, step, workflow
from holdfast.sandbox import Sandbox, default_host

@step
def begin_in_a_thread() -> str:
    async def inner() -> str:
        return (await Sandbox.create(backend="namespace")).id
    return asyncio.run(inner())

@workflow
async def leaves_one_from_a_thread() -> str:
    return await begin_in_a_thread()

async def main():
    async with open_engine(sys.argv[1]):
        print(await (await start(leaves_one_from_a_thread)).result())
        while default_host().sandboxes:
            await asyncio.sleep(0.01)

asyncio.run(main())
"""


async def test_a_sandbox_left_by_a_plain_function_step_is_stopped_too(
    tmp_path: Path, sandbox_state: str
) -> None:
    """Its event loop is gone by then."""
    id = (await in_a_process(LEFT_BY_A_THREAD, 0, sandbox_state, str(tmp_path / "a.db"))).strip()
    records = SqliteSandboxRecords(tmp_path / "a.db")
    box = await records.get(id)
    assert box is not None and box.stopped_because == "its run ended"
    await records.close()


async def test_without_a_store_nothing_is_recorded(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    assert session.opened_store() is None
    async with await make() as sandbox:
        await sandbox.shell("true")
    assert list(tmp_path.iterdir()) == []


async def test_the_variable_names_a_store_that_is_not_open(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "named.db"))
    async with await make(source=str(tmp_path)) as sandbox:
        await sandbox.shell("true")
    for observer in host.observers:
        if isinstance(observer, StoreObserver):
            await asyncio.to_thread(observer.flush)
    records = SqliteSandboxRecords(tmp_path / "named.db")
    box = await records.get(sandbox.id)
    assert box is not None
    assert (box.run_id, box.source, box.stopped_because) == (None, str(tmp_path), "stopped")
    await records.close()


async def test_what_the_command_line_runs_is_recorded_where_the_variable_says(
    tmp_path: Path, sandbox_state: str
) -> None:
    path = tmp_path / "named.db"
    main = "import sys; from holdfast.cli.main import main; sys.exit(main(sys.argv[1:]))"
    words = ["sandbox", "run", "--backend", "namespace", "--", "echo", "hi"]
    said = await in_a_process(main, 0, sandbox_state, *words, HOLDFAST_STORE=str(path))
    assert said == "hi\n"
    records = SqliteSandboxRecords(path)
    (box,) = (await records.list()).sandboxes
    (command,) = (await records.commands(sandbox_id=box.id)).commands
    assert (command.argv, command.stdout_tail) == (("echo", "hi"), "hi\n")
    assert not box.live
    await records.close()


async def test_a_sandbox_that_outlives_its_store_is_recorded_to_its_end(
    host: Host, tmp_path: Path
) -> None:
    async with open_engine(tmp_path / "a.db"):
        sandbox = await make()
    async with open_engine(tmp_path / "b.db"):
        await sandbox.shell("true")
        records = SqliteSandboxRecords(tmp_path / "a.db")
        alive = await records.get(sandbox.id)
        assert alive is not None and alive.live  # not taken for dead: its process lives
        await sandbox.stop("enough")
    for observer in host.observers:
        if isinstance(observer, StoreObserver):
            await asyncio.to_thread(observer.flush)
    ended = await records.get(sandbox.id)
    assert ended is not None and ended.stopped_because == "enough"
    assert len((await records.commands(sandbox_id=sandbox.id)).commands) == 1
    await records.close()


async def test_of_much_output_the_end_is_kept_and_the_rest_counted(
    host: Host, tmp_path: Path
) -> None:
    async with open_engine(tmp_path / "a.db"):
        async with await make() as sandbox:
            await sandbox.run("python", "-c", "print('é' * 100_000 + 'end')")
            noisy = await sandbox.start(
                "python", "-c", "print('x' * 3_000_000 + 'z')", max_output="1mb"
            )
            await noisy.wait()
    records = SqliteSandboxRecords(tmp_path / "a.db")
    first, second = (await records.commands(sandbox_id=sandbox.id)).commands
    assert first.stdout_bytes == 200_004
    assert first.stdout_tail.startswith("é") and first.stdout_tail.endswith("éend\n")
    assert len(first.stdout_tail.encode()) + first.stdout_cut == 200_004
    assert TAIL - 4 < len(first.stdout_tail.encode()) <= TAIL
    assert (second.stdout_bytes, second.stdout_cut) == (3_000_002, 3_000_002 - TAIL)
    assert second.stdout_tail.endswith("xz\n")
    await records.close()


@pytest.mark.parametrize("start", range(5))
def test_a_tail_does_not_begin_inside_a_character(start: int) -> None:
    data = b"a" * start + "🙂".encode() * (TAIL // 4 + 1)
    assert "�" not in tail(data).decode("utf-8", "replace")
    assert len(tail(data)) > TAIL - 4


def test_bytes_that_are_no_text_are_kept_in_full_length() -> None:
    assert tail(b"\x80" * (TAIL + 9)) == b"\x80" * TAIL


async def test_attempts_to_reach_the_network_are_on_record_and_added_headers_are_not(
    host: Host, tmp_path: Path
) -> None:
    path = tmp_path / "a.db"
    with serving() as port:
        network = Network(
            allow=[
                AllowedHost(
                    "api.example",
                    ports=(80,),
                    to=f"127.0.0.1:{port}",
                    headers={"authorization": SECRET},
                )
            ]
        )
        fetch = "import urllib.request as u; print(u.urlopen('http://{}/x').read().decode())"
        async with open_engine(path):

            @step
            async def reach_out() -> tuple[str, str]:
                async with await make(network=network) as sandbox:
                    allowed = await sandbox.run("python", "-c", fetch.format("api.example"))
                    await sandbox.run("python", "-c", fetch.format("other.example"))
                return sandbox.id, allowed.stdout

            @workflow
            async def reaches_out() -> tuple[str, str]:
                return await reach_out()

            run = await start(reaches_out)
            id, said = await run.result()
            assert SECRET in said  # it was sent; this server echoes it back
    records = SqliteSandboxRecords(path)
    attempts = (await records.egress(run_id=run.id)).attempts
    assert [(a.host, a.allowed) for a in attempts] == [
        ("api.example", True),
        ("other.example", False),
    ]
    assert (await records.egress(sandbox_id=id)).attempts == attempts
    assert attempts[0].sent > 0 and attempts[0].received > 0
    box = await records.get(id)
    assert SECRET not in repr((box, attempts))
    await records.close()


def test_the_password_of_a_source_is_not_written_down() -> None:
    assert shown("https://me:secret@git.example/a.git#main") == "https://git.example/a.git#main"
    assert shown("https://git.example/a@b.git") == "https://git.example/a@b.git"
    assert shown("/srv/me:x@y") == "/srv/me:x@y"


ABANDONED = """
import asyncio, os, sys
from holdfast import open_engine
from holdfast.sandbox import Sandbox

async def main():
    async with open_engine(sys.argv[1]):
        sandbox = await Sandbox.create(backend="namespace")
        command = await sandbox.start("sleep", "600")
        print(sandbox.id, command.id, flush=True)
        if sys.argv[2] == "killed":
            from holdfast.sandbox import default_host
            default_host().observers[0].flush()
            os.kill(os.getpid(), 9)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["killed", "ended"])
async def test_what_a_process_had_running_is_closed_in_the_records_however_it_ends(
    tmp_path: Path, sandbox_state: str, how: str
) -> None:
    path = tmp_path / "a.db"
    code = -9 if how == "killed" else 0
    said = await in_a_process(ABANDONED, code, sandbox_state, str(path), how)
    id, command_id = said.split()
    records = SqliteSandboxRecords(path)
    box, command = await records.get(id), await records.command(command_id)
    assert box is not None and command is not None
    if how == "killed":
        assert (box.stopped_because, command.ended) == (PROCESS_DIED, PROCESS_DIED)
    else:
        assert (box.stopped_because, command.ended) == ("its process ended", "stopped")
    await records.close()
