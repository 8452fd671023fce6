"""The host process: pool, records against runs, handles across processes, git sources, the CLI."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.errors import NotFound, SourceError
from holdfast.records.sandboxes import SandboxRecord
from holdfast.sandbox import AllowedHost, Ended, Host, Sandbox
from holdfast.sandbox.spec import Limits, Spec
from holdfast.session import Caller, CurrentStep, set_caller
from holdfast.store.sqlite import sandbox_rows
from holdfast.store.sqlite.sandbox_writer import SqliteSandboxWriter
from sandbox.support import create, observed, require, serving, shared_host, until
from waiting import LIMIT


@pytest.fixture
def own_host(tmp_path: Path):
    require("namespace")
    host = Host(tmp_path / "state", pool=2)
    yield host
    host.close()
    assert not list((tmp_path / "state/hosts").iterdir())


async def test_the_pool_is_filled_bounded_and_emptied(own_host: Host) -> None:
    await own_host.warm("namespace")
    pool = own_host._pools["namespace"]
    assert len(pool) == 2
    ready = {instance.id for instance in pool._ready}
    made = [await Sandbox.create(backend="namespace", host=own_host) for _ in range(3)]
    assert {s.id for s in made[:2]} == ready and made[2].id not in ready
    await until(lambda: len(pool) == 2)
    for sandbox in made:
        assert (await sandbox.run("echo", "x")).ok
        await sandbox.stop()
    await asyncio.sleep(0.1)
    assert len(pool) == 2
    await own_host.aclose()
    assert len(pool) == 0


async def test_a_pooled_sandbox_is_fresh_and_fits_what_was_asked(own_host: Host) -> None:
    await own_host.warm(
        "namespace",
        Spec(
            limits=Limits.of(
                cpus=1, memory="1gb", disk=None, inodes=None, pids=256, open_files=1024
            )
        ),
    )
    async with await Sandbox.create(backend="namespace", host=own_host, memory="96mb") as small:
        assert (
            await small.run("python", "-c", "x = bytearray(10**9)")
        ).ended is Ended.OUT_OF_MEMORY
    async with await Sandbox.create(backend="namespace", host=own_host) as fresh:
        assert await fresh.list_files() == []
    await own_host.aclose()  # what is being made for the pool ends with this loop


async def test_sandboxes_are_recorded_against_run_and_step_and_end_with_the_run() -> None:
    step = CurrentStep("run_1", "w", "make", "0.1", 1, "key")
    host = shared_host()
    with observed(host) as observer:
        set_caller(Caller(step=step))
        try:
            mine = await create()
        finally:
            set_caller(Caller())
        other = await create()
        assert (observer.sandboxes[mine.id].run_id, observer.sandboxes[mine.id].step_key) == (
            "run_1",
            "0.1",
        )
        assert observer.sandboxes[other.id].run_id is None
        await host.end_run("run_1")
        assert not mine.running and other.running
        assert observer.sandboxes[mine.id].stopped_because == "its run ended"
        await other.stop()


OTHER = """
import asyncio, json, sys
from holdfast.sandbox import Host, Sandbox
async def main():
    host = Host(sys.argv[1], pool=0)
    box = await Sandbox.get(sys.argv[2], host=host)
    out = {"same": box.id == sys.argv[2], "backend": box.backend}
    await box.write_files({"from-other": "hello"})
    said = []
    r = await box.run("sh", "-c", "cat mine; echo err >&2; exit 5", on_stdout=said.append)
    out["run"] = [r.stdout, r.stderr, r.exit_code, "".join(said)]
    used = await box.run("python", "-c", "x = b'x' * (48 << 20)")
    out["used"] = [used.cpu_seconds, used.peak_memory]
    out["stdin"] = (await box.run("cat", stdin="in")).stdout
    out["memory"] = (await box.run("python", "-c", "x = bytearray(10**9)")).ended
    bg = await box.start("sleep", "60"); await bg.kill(); out["killed"] = (await bg.wait()).signal
    box.extend_timeout(30)
    box.release()
    again = await Sandbox.get(sys.argv[2], host=host)
    await again.stop("by another")
    await host.aclose()
    print(json.dumps(out))
asyncio.run(main())
"""


async def test_a_sandbox_is_used_and_stopped_from_another_process() -> None:
    host = shared_host()
    sandbox = await create(memory="128mb")
    await sandbox.write_files({"mine": "content"})
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OTHER, str(host.state), sandbox.id, stdout=-1
    )
    out, _ = await process.communicate()
    told = json.loads(out)
    assert told["same"] and told["backend"] == "namespace"
    assert told["run"] == ["content", "err\n", 5, "content"]
    assert told["stdin"] == "in" and told["memory"] == "out_of_memory" and told["killed"] == 9
    cpu, peak = told["used"]  # as the process that holds it counts them
    assert cpu > 0 and 48 << 20 <= peak <= 128 << 20
    await until(lambda: sandbox.id not in host.sandboxes)
    assert sandbox.record.stopped_because == "by another"
    assert sandbox.record.cpu_seconds > cpu  # pyright: ignore[reportOperatorIssue]
    assert sandbox.record.peak_memory == 128 << 20  # of the one that ran out of it
    with pytest.raises(NotFound):
        await Sandbox.get(sandbox.id, host=host)


def _git(folder: Path, *words: str) -> str:
    env = {
        **os.environ,
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@x",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@x",
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    return subprocess.run(
        ["git", *words], cwd=folder, env=env, check=True, capture_output=True, text=True
    ).stdout.strip()


async def test_a_repository_is_fetched_at_a_branch_and_nothing_of_it_is_run(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    _git(repo, "init", "-q", "-b", "main")
    (repo / "a.txt").write_text("main\n")
    (repo / ".gitattributes").write_text("* filter=evil\n")
    _git(repo, "add", ".")
    _git(repo, "commit", "-qm", "one")
    _git(repo, "checkout", "-qb", "other")
    (repo / "a.txt").write_text("other\n")
    _git(repo, "commit", "-qam", "two")
    _git(repo, "checkout", "-q", "main")
    for ref, content in (("", "main\n"), ("#other", "other\n")):
        async with await create(source=f"file://{repo}{ref}") as sandbox:
            assert await sandbox.read_text("a.txt") == content
            assert (await sandbox.shell("git log --oneline | wc -l")).stdout.strip() == "1"
    for bad in (
        f"file://{repo}#missing",
        "file:///no/such/repo.git",
        "ext::sh -c touch% /tmp/x.git",
    ):
        with pytest.raises(SourceError):
            await create(source=bad)


async def test_tools_people_use_reach_allowed_hosts(tmp_path: Path) -> None:
    """pip, git, curl, urllib and node's fetch, none of which is told of a proxy."""
    import functools
    import http.server

    site = tmp_path / "site"
    _make_wheel(site / "simple/tiny")
    repo = tmp_path / "repo"
    repo.mkdir()
    _git(repo, "init", "-q", "-b", "main")
    (repo / "f").write_text("from git")
    _git(repo, "add", ".")
    _git(repo, "commit", "-qm", "one")
    _git(tmp_path, "clone", "-q", "--bare", str(repo), str(site / "repo.git"))
    _git(site / "repo.git", "update-server-info")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(site))
    with serving(handler) as port:  # type: ignore[arg-type]
        rule = AllowedHost("packages.test", to=f"127.0.0.1:{port}")
        async with await create(network=[rule]) as box:
            pip = await box.shell(
                "python -m pip install -q --index-url http://packages.test/simple "
                "--trusted-host packages.test tiny && python -c 'import tiny; print(tiny.X)'",
                timeout=60,
            )
            assert pip.stdout == "7\n", pip.stderr
            clone = await box.shell("git clone -q http://packages.test/repo.git r && cat r/f")
            assert clone.stdout == "from git", clone.stderr
            fetch = "fetch('http://packages.test/simple/tiny/').then(r => console.log(r.status))"
            assert (await box.run("node", "-e", fetch)).stdout == "200\n"
            urllib = "import urllib.request as u; print(u.urlopen('http://packages.test/simple/').status)"
            assert (await box.run("python", "-c", urllib)).stdout == "200\n"
            npm = await box.shell(
                "npm view nothing --registry http://packages.test/ 2>&1 | grep -c 404", timeout=60
            )
            assert int(npm.stdout) > 0, "npm did not get through to the server's own answer"


def _make_wheel(folder: Path) -> None:
    import zipfile

    folder.mkdir(parents=True)
    name = "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(folder / name, "w") as wheel:
        wheel.writestr("tiny.py", "X = 7\n")
        wheel.writestr(
            "tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
        )
        wheel.writestr(
            "tiny-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")
    (folder / "index.html").write_text(f'<a href="{name}">{name}</a>')


# ------------------------------------------------------------------------------ command line


def _cli(*words: str, state: Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast.cli.main", "sandbox", *words],
        env={**os.environ, "HOLDFAST_SANDBOX_DIR": str(state)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        **options,  # type: ignore[call-overload]
    )


def test_the_command_line_runs_a_command_and_exits_as_it_does(sandbox_state: str) -> None:
    require("namespace")
    done = _cli(
        "run",
        "--backend",
        "namespace",
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; exit 7",
        state=shared_host().state,
    )
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert "err" in done.stderr and "shares the host's kernel" in done.stderr
    told = json.loads(
        _cli(
            "run", "--backend", "namespace", "--json", "--", "echo", "x", state=shared_host().state
        ).stdout
    )
    assert told["stdout"] == "x\n" and told["ended"] == "exited"


def test_the_doctor_tells_what_works_and_why_the_rest_does_not(sandbox_state: str) -> None:
    require("namespace")
    done = _cli("doctor", "--json", state=shared_host().state)
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["backends"]["namespace"]["works"]
    assert report["auto"] in ("namespace", "gvisor", "microvm")
    assert all(each["reason"] and each["isolation"] for each in report["backends"].values())
    assert "auto takes" in _cli("doctor", state=shared_host().state).stdout


async def test_the_command_line_lists_enters_and_stops_sandboxes() -> None:
    host = shared_host()
    sandbox = await create()

    async def cli(*words: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(_cli, *words, state=host.state)

    listed = json.loads((await cli("list", "--json")).stdout)["sandboxes"]
    assert sandbox.id in [record["id"] for record in listed]
    assert sandbox.id in (await cli("list")).stdout
    assert (await cli("exec", sandbox.id, "--", "pwd")).stdout == "/workspace\n"
    done = json.loads((await cli("exec", "--json", sandbox.id, "--", "true")).stdout)
    assert done["cpu_seconds"] > 0 and done["peak_memory"] > 0
    told = json.loads((await cli("list", "--json")).stdout)["sandboxes"]
    (used,) = [record for record in told if record["id"] == sandbox.id]
    assert used["cpu_seconds"] >= done["cpu_seconds"] and used["disk_used"] == 0
    assert (await cli("stop", sandbox.id)).stdout == f"{sandbox.id}\n"
    await until(lambda: not sandbox.running)
    missing = await cli("stop", "sbx_none", "--json")
    assert missing.returncode == 3 and json.loads(missing.stdout)["error"]["kind"] == "NotFound"
    none = {"sandboxes": 0, "commands": 0, "attempts": 0}
    collected = json.loads((await cli("gc", "--json")).stdout)
    assert collected == {"swept": [], "dropped": none, "snapshots": []}


async def test_the_command_line_lists_and_prunes_templates() -> None:
    host = shared_host()
    builder = Sandbox.template("listed", backend="namespace", host=host)
    for text in ("1", "2"):
        await builder.files({"a": text}).save()

    def cli(*words: str) -> str:
        return _cli("templates", *words, state=host.state).stdout

    assert "listed@1" in cli() and "files a" in cli()
    told = json.loads(cli("--prune", "1", "--json"))
    assert "listed@1" in told["removed"]
    assert [each["version"] for each in told["templates"] if each["name"] == "listed"] == [2]


async def test_the_command_line_lists_follows_and_ends_commands() -> None:
    sandbox = await create()

    async def cli(*words: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(_cli, *words, state=shared_host().state)

    one = await sandbox.start("sh", "-c", "echo said; sleep 600")
    await until(lambda: "said" in one.logs())
    listed = json.loads((await cli("ps", sandbox.id, "--json")).stdout)["commands"]
    assert [(each["id"], each["pid"]) for each in listed] == [(one.id, one.pid)]
    assert one.id in (await cli("ps", sandbox.id)).stdout
    assert (await cli("logs", sandbox.id, one.id)).stdout == "said\n"
    following = asyncio.create_task(cli("logs", "--follow", sandbox.id, one.id))
    assert (await cli("kill", sandbox.id, one.id, "--signal", "nonsense")).returncode == 2
    assert (await cli("kill", sandbox.id, one.id, "--signal", "TERM")).returncode == 0
    followed = await following
    assert (followed.stdout, followed.returncode) == ("said\n", 128 + 15)
    assert (await one.wait()).signal == 15
    assert (await cli("kill", sandbox.id, "cmd_none")).returncode == 3
    assert (await cli("url", sandbox.id, "8000", "--json")).returncode == 3  # nobody serves here
    await sandbox.stop()


async def test_the_command_lines_shell_is_a_terminal_in_the_sandbox() -> None:
    sandbox = await create()
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    before = termios.tcgetattr(theirs)
    command = [sys.executable, "-m", "holdfast.cli.main", "sandbox", "shell", sandbox.id, "sh"]
    env = {**os.environ, "HOLDFAST_SANDBOX_DIR": str(shared_host().state), "PS1": "> "}
    shell = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
    )
    seen = b""

    def read() -> None:
        nonlocal seen
        seen += os.read(ours, 4096)

    os.set_blocking(ours, False)
    loop = asyncio.get_running_loop()
    loop.add_reader(ours, read)
    try:
        await until(lambda: termios.tcgetattr(theirs) != before and b"$" in seen)
        os.write(ours, b"stty size; pwd\r")
        await until(lambda: b"33 111" in seen and b"/workspace" in seen)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 99, 0, 0))
        shell.send_signal(signal.SIGWINCH)
        while b"44 99" not in seen:
            os.write(ours, b"stty size\r")
            await asyncio.sleep(0.2)
        os.write(ours, b"exit 5\r")
        assert await asyncio.to_thread(shell.wait, LIMIT) == 5
        assert termios.tcgetattr(theirs) == before
    finally:
        loop.remove_reader(ours)
        shell.kill()
        shell.wait()
        os.close(ours)
        os.close(theirs)
    refused = await asyncio.to_thread(_cli, "shell", sandbox.id, state=shared_host().state)
    assert refused.returncode == 2 and "terminal" in refused.stderr
    await sandbox.stop()


def test_old_records_are_dropped_as_configured_or_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=40)
    box = SandboxRecord(
        "sbx_1", "namespace", "-", "python", long_ago, 60.0, 1.0, 1 << 30, 1 << 29, 9, (), None
    )
    writer = SqliteSandboxWriter(tmp_path / "a.db")
    writer.put(lambda c, owner: sandbox_rows.add_sandbox(c, owner, box))
    over = replace(box, stopped_at=long_ago, stopped_because="stopped")
    writer.put(lambda c, _: sandbox_rows.stop_sandbox(c, over))
    writer.close()
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "a.db"))

    def dropped(*words: str) -> int:
        told = _cli("gc", "--json", *words, state=tmp_path / "state")
        return json.loads(told.stdout)["dropped"]["sandboxes"]

    assert dropped() == 0  # for ever, unless somebody says otherwise
    assert dropped("--keep", "50d") == 0
    monkeypatch.setenv("HOLDFAST_SANDBOX_KEEP_RECORDS", "30d")
    assert dropped("--keep", "50d") == 0
    assert dropped() == 1
    monkeypatch.setenv("HOLDFAST_SANDBOX_KEEP_RECORDS", "a while")
    refused = _cli("gc", "--json", state=tmp_path / "state")
    assert refused.returncode == 2 and "'a while' is no duration" in refused.stdout


async def test_a_process_that_does_not_answer_is_not_waited_for() -> None:
    """Ours, whose event loop these calls keep from running."""
    host = shared_host()
    async with await create() as sandbox:
        listed = _cli("list", "--json", state=host.state)
        assert listed.returncode == 0, listed.stderr
        assert sandbox.id in json.loads(listed.stdout)["silent"]
        assert f"{sandbox.id}: its process does not answer" in _cli("list", state=host.state).stderr
        entered = _cli("exec", sandbox.id, "--json", "--", "true", state=host.state)
        assert entered.returncode == 1
        assert "does not answer" in json.loads(entered.stdout)["error"]["message"]
        assert (await sandbox.run("echo", "on")).stdout == "on\n"


def test_output_can_not_take_over_a_terminal() -> None:
    from holdfast.cli.sandbox import tame

    assert tame("a\x1b[31mred\x1b[0m\tb\r\n") == "a\x1b[31mred\x1b[0m\tb\r\n"
    for hostile in (
        "\x1b]0;title\x07",
        "\x1b[2J",
        "\x1b]52;c;aGk=\x07",
        "\x9b31m",
        "\x1bP+q\x1b\\",
        "\x08",
    ):
        assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in tame(hostile))


def test_the_errors_of_the_reference_can_be_imported_from_the_sandbox() -> None:
    import holdfast.errors
    from holdfast import sandbox

    for name in ("CommandNotStarted", "SandboxError", "SandboxFileError", "SandboxGone"):
        assert getattr(sandbox, name) is getattr(holdfast.errors, name)
    for name in ("SandboxUnavailable", "SourceError"):
        assert getattr(sandbox, name) is getattr(holdfast.errors, name)
