"""What every backend must do: one suite, run against each that works here."""

from __future__ import annotations

import asyncio
import errno
import signal
from pathlib import Path

import pytest

from holdfast.errors import (
    CommandNotStarted,
    NotFound,
    SandboxError,
    SandboxFileError,
    SandboxGone,
    SandboxUnavailable,
    SourceError,
    UsageError,
)
from holdfast.sandbox import AllowedHost, Ended, Limit, Sandbox
from sandbox.fixtures import backend, sandbox_state
from sandbox.support import create, observed, serving, shared_host, until
from waiting import LIMIT

__all__ = ["backend", "sandbox_state"]


async def test_a_program_runs_and_its_output_and_exit_code_are_told(backend: str) -> None:
    async with await create(backend) as sandbox:
        result = await sandbox.shell("echo out; echo err >&2; exit 3")
    assert (result.ended, result.exit_code) == (Ended.EXITED, 3)
    assert (result.stdout, result.stderr) == ("out\n", "err\n")
    assert not result.ok and result.signal is None and result.seconds > 0


async def test_python_and_node_and_typescript_run(backend: str) -> None:
    async with await create(backend) as sandbox:
        await sandbox.write_files(
            {
                "a.py": "import sys\nprint(sys.argv[1:], sum(range(10)))",
                "b.js": "console.log([1, 2].map(x => x * 2).join())",
                "c.ts": "const n: number = 6;\nconsole.log(n * 7);",
            }
        )
        assert (await sandbox.run("python", "a.py", "x y")).stdout == "['x y'] 45\n"
        assert (await sandbox.run("node", "b.js")).stdout == "2,4\n"
        version = (await sandbox.run("node", "--version")).stdout
        if int(version[1:].split(".")[0]) >= 24:
            assert (await sandbox.run("node", "c.ts")).stdout == "42\n"


async def test_files_are_written_read_listed_and_removed(backend: str) -> None:
    big = bytes(range(256)) * 12_000
    async with await create(backend) as sandbox:
        await sandbox.write_files({"a/b/c.bin": big, "top.txt": "grüße\n", "/tmp/x": b""})
        assert await sandbox.read_file("a/b/c.bin") == big
        assert await sandbox.read_text("top.txt") == "grüße\n"
        assert await sandbox.read_file("/tmp/x") == b""
        await sandbox.mkdir("empty/deep")
        found = {f.path: f.type for f in await sandbox.list_files(recursive=True)}
        assert found == {
            "a": "dir",
            "a/b": "dir",
            "a/b/c.bin": "file",
            "empty": "dir",
            "empty/deep": "dir",
            "top.txt": "file",
        }
        await sandbox.remove("a")
        assert [f.path for f in await sandbox.list_files()] == ["empty", "top.txt"]


async def test_a_written_file_can_be_made_executable(backend: str) -> None:
    async with await create(backend) as sandbox:
        await sandbox.write_files({"tool": "#!/bin/sh\necho made\n"}, mode=0o755)
        assert (await sandbox.run("./tool")).stdout == "made\n"


async def test_file_errors_say_which_file_and_why(backend: str) -> None:
    async with await create(backend) as sandbox:
        with pytest.raises(SandboxFileError, match="nope") as missing:
            await sandbox.read_file("nope")
        assert missing.value.errno == errno.ENOENT
        with pytest.raises(SandboxFileError) as folder:
            await sandbox.read_file(".")
        assert folder.value.errno == errno.EISDIR
        with pytest.raises(SandboxFileError) as refused:
            await sandbox.write_files({"/usr/x": "no"})
        assert refused.value.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
        await sandbox.write_files({"large": b"x" * 1000})
        with pytest.raises(SandboxFileError) as large:
            await sandbox.read_file("large", limit=999)
        assert large.value.errno == errno.EFBIG


async def test_standard_input_is_given_and_ends(backend: str) -> None:
    data = bytes(range(256)) * 5000
    async with await create(backend) as sandbox:
        assert (await sandbox.run("cat", stdin=data)).stdout_bytes == data
        assert (await sandbox.run("cat", stdin="")).stdout == ""
        assert (await sandbox.run("cat")).stdout == ""
        early = await sandbox.run("head", "-c", "3", stdin=data)
        assert early.stdout_bytes == data[:3]


async def test_output_streams_while_the_program_runs(backend: str) -> None:
    said: list[str] = []
    seen_early = asyncio.Event()

    def heard(text: str) -> None:
        said.append(text)
        if "first" in text:
            seen_early.set()

    async with await create(backend) as sandbox:
        assert (await sandbox.run("mkfifo", "go")).ok
        running = asyncio.create_task(
            sandbox.shell("echo first; cat go; echo last", on_stdout=heard)
        )
        await seen_early.wait()
        assert not running.done()
        await sandbox.shell("echo between > go")
        result = await running
    assert "".join(said) == result.stdout == "first\nbetween\nlast\n"


async def test_a_character_cut_in_two_by_streaming_arrives_whole(backend: str) -> None:
    said: list[str] = []
    code = "import sys, time\nfor b in '→'.encode():\n sys.stdout.buffer.write(bytes([b])); "
    code += "sys.stdout.flush(); time.sleep(0.03)"
    async with await create(backend) as sandbox:
        await sandbox.run("python", "-c", code, on_stdout=said.append)
    assert "".join(said) == "→"


async def test_what_a_listener_raises_reaches_whoever_waits(backend: str) -> None:
    def heard(text: str) -> None:
        raise LookupError(text)

    async with await create(backend) as sandbox:
        with pytest.raises(LookupError, match="said"):
            await sandbox.shell("echo said; sleep 60", on_stdout=heard)
        assert (await sandbox.run("echo", "on")).stdout == "on\n"


async def test_environment_and_working_folder_are_as_given_and_nothing_more(backend: str) -> None:
    async with await create(backend, env={"A": "1"}) as sandbox:
        await sandbox.mkdir("sub")
        result = await sandbox.run("sh", "-c", "pwd; echo $A$B", cwd="sub", env={"B": "2"})
        assert result.stdout == "/workspace/sub\n12\n"
        names = (await sandbox.shell("env | cut -d= -f1 | sort")).stdout.split()
    assert set(names) <= {"A", "HOME", "LC_CTYPE", "PATH", "PWD", "USER", "_", "SHLVL", "OLDPWD"}


async def test_a_signal_is_told_as_such(backend: str) -> None:
    async with await create(backend) as sandbox:
        result = await sandbox.shell("kill -SEGV $$")
    assert (result.ended, result.signal) == (Ended.SIGNALLED, signal.SIGSEGV)
    assert result.exit_code is None


async def test_a_program_over_its_time_is_ended_and_its_output_kept(backend: str) -> None:
    async with await create(backend) as sandbox:
        result = await sandbox.shell("trap '' TERM; echo begun; sleep 60", timeout=2)
        assert (result.ended, result.stdout) == (Ended.TIMED_OUT, "begun\n")
        assert result.seconds < 40
        assert (await sandbox.run("echo", "on")).stdout == "on\n"


async def test_a_program_over_its_output_is_ended_and_the_rest_kept(backend: str) -> None:
    async with await create(backend) as sandbox:
        result = await sandbox.run("yes", max_output=5000)
        assert result.ended is Ended.OUTPUT_LIMIT
        assert result.stdout_bytes == (b"y\n" * 2500)
        assert (await sandbox.run("echo", "on")).stdout == "on\n"


async def test_a_program_over_its_memory_is_reported_out_of_memory(backend: str) -> None:
    async with await create(backend, memory="128mb") as sandbox:
        result = await sandbox.run("python", "-c", "x = bytearray(900_000_000)")
    assert result.ended is Ended.OUT_OF_MEMORY


async def test_the_disk_has_an_end(backend: str) -> None:
    async with await create(backend, memory="256mb", disk="20mb") as sandbox:
        result = await sandbox.shell("head -c 60m /dev/zero > big")
        assert result.exit_code != 0 and "No space left" in result.stderr
        if backend == "namespace":
            assert Limit.DISK in result.limits_hit
        await sandbox.remove("big")
        assert (await sandbox.shell("echo fine > small && cat small")).stdout == "fine\n"


async def test_what_is_no_program_is_not_started(backend: str) -> None:
    async with await create(backend) as sandbox:
        with pytest.raises(CommandNotStarted, match="no-such-program"):
            await sandbox.run("no-such-program")
        await sandbox.write_files({"data.txt": "x"})
        with pytest.raises(CommandNotStarted) as refused:
            await sandbox.run("./data.txt")
        assert refused.value.errno == errno.EACCES


FOLDERS = {"no/such": errno.ENOENT, "data.txt": errno.ENOTDIR, "locked": errno.EACCES}


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("program", ["python", "echo"])  # one is forked, the other executed
async def test_where_there_is_no_way_in_nothing_is_started(
    program: str, folder: str, backend: str
) -> None:
    async with await create(backend) as sandbox:
        await sandbox.write_files({"data.txt": "x"})
        await sandbox.shell("mkdir locked; chmod 000 locked")
        for _ in range(2):  # and nothing is left that could answer in the agent's place
            with pytest.raises(CommandNotStarted) as refused:
                await sandbox.run(program, "-c", "1", cwd=folder)
            assert refused.value.errno == FOLDERS[folder]
            assert folder in str(refused.value)
        count = "import os; print(sum(name.isdigit() for name in os.listdir('/proc')))"
        # The agent, the template that scripts are forked from, and this one.
        assert (await sandbox.run("python", "-c", count)).stdout == "3\n"


async def test_a_program_waits_for_its_order_or_is_started_when_it_comes(backend: str) -> None:
    """At once, after a while, and several at a time: where forks are slow, one is made ahead."""
    async with await create(backend) as sandbox:
        words = ("python", "-c", "import os; print(os.getuid(), os.getppid() in (1, 2))")
        for pause in (0, 0.2, 0, 0.2):
            await asyncio.sleep(pause)
            echoed, told = await asyncio.gather(
                sandbox.run("sh", "-c", "echo $X; cat; exit 3", env={"X": "x" * 90_000}, stdin="y"),
                sandbox.run(*words),
            )
            assert (echoed.stdout, echoed.exit_code) == ("x" * 90_000 + "\ny", 3)
            assert told.stdout == "1000 True\n"


async def test_arguments_are_checked_before_anything_starts(backend: str) -> None:
    async with await create(backend) as sandbox:
        with pytest.raises(UsageError, match="zero byte"):
            await sandbox.run("echo", "a\0b")
        with pytest.raises(UsageError, match="longer than"):
            await sandbox.run("echo", "x" * 2_000_000)
        with pytest.raises(UsageError, match="environment variable"):
            await sandbox.run("echo", env={"A=B": "x"})
        if backend == "namespace":  # gVisor's kernel has no limit for one word
            with pytest.raises(CommandNotStarted) as long:
                await sandbox.run("/bin/echo", "x" * 200_000)
            assert long.value.errno == errno.E2BIG


async def test_a_detached_program_runs_on_and_can_be_followed_and_killed(backend: str) -> None:
    async with await create(backend) as sandbox:
        server = await sandbox.start("sh", "-c", "echo up; while :; do sleep 0.05; echo on; done")
        await until(lambda: server.logs().count("on") >= 2)
        assert server.running and server.pid
        first = await anext(aiter(server))
        assert first.text.startswith("up") and first.stream == "stdout"
        await server.kill()
        result = await server.wait()
        assert (result.ended, result.signal) == (Ended.SIGNALLED, signal.SIGKILL)
        assert not server.running


async def test_iterating_over_a_command_gives_all_of_its_output(backend: str) -> None:
    async with await create(backend) as sandbox:
        command = await sandbox.start(
            "sh", "-c", "for i in 1 2 3 4 5; do echo $i; done; echo e >&2"
        )
        pieces = [piece async for piece in command]
    out = "".join(p.text for p in pieces if p.stream == "stdout")
    assert out == "1\n2\n3\n4\n5\n"
    assert "".join(p.text for p in pieces if p.stream == "stderr") == "e\n"


async def test_a_detached_program_can_be_talked_to(backend: str) -> None:
    async with await create(backend) as sandbox:
        shell = await sandbox.start("sh", stdin=True)
        await shell.write_stdin("echo one\n")
        await until(lambda: "one" in shell.logs())
        await shell.write_stdin("echo two\n", last=True)
        result = await shell.wait()
    assert (result.stdout, result.exit_code) == ("one\ntwo\n", 0)


async def test_many_commands_run_side_by_side(backend: str) -> None:
    async with await create(backend) as sandbox:
        results = await asyncio.gather(*(sandbox.shell(f"echo {n}; exit {n}") for n in range(12)))
    assert [(r.stdout, r.exit_code) for r in results] == [(f"{n}\n", n) for n in range(12)]


async def test_stop_is_complete_and_can_be_repeated(backend: str) -> None:
    sandbox = await create(backend)
    command = await sandbox.start("sleep", "60")
    await sandbox.stop()
    await sandbox.stop()
    assert (await command.wait()).ended is Ended.STOPPED
    assert not sandbox.running
    with pytest.raises(SandboxGone, match="has stopped"):
        await sandbox.run("echo")
    with pytest.raises(SandboxGone):
        await sandbox.read_file("x")


async def test_a_sandbox_ends_at_its_time_limit(backend: str) -> None:
    sandbox = await create(backend, timeout=3)
    result = await sandbox.run("sleep", "60")
    assert result.ended is Ended.TIMED_OUT
    await until(lambda: not sandbox.running)
    await sandbox.stop()
    assert sandbox.record.stopped_because == "time limit"


async def test_its_time_can_be_extended(backend: str) -> None:
    sandbox = await create(backend, timeout=3)
    sandbox.extend_timeout("300s")
    assert (await sandbox.shell("sleep 3.3; echo late")).stdout == "late\n"
    await sandbox.stop()


async def test_a_sandbox_is_found_again_by_its_id(backend: str) -> None:
    host = shared_host()
    async with await create(backend) as sandbox:
        assert await Sandbox.get(sandbox.id, host=host) is sandbox
        assert sandbox in Sandbox.list(host=host)
    with pytest.raises(NotFound):
        await Sandbox.get(sandbox.id, host=host)


async def test_cancelling_whoever_waits_ends_the_command(backend: str) -> None:
    async with await create(backend) as sandbox:
        waiting = asyncio.create_task(sandbox.shell("echo $$ > pid; sleep 60"))
        for _ in range(500):
            if any(f.path == "pid" and f.size for f in await sandbox.list_files()):
                break
        pid = (await sandbox.read_text("pid")).strip()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        for _ in range(200):
            gone = await sandbox.shell(f"test ! -d /proc/{pid}")
            if gone.ok:
                break
        assert gone.ok


async def test_a_folder_is_copied_in_links_as_links(backend: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("host")
    source = tmp_path / "source"
    (source / "pkg").mkdir(parents=True)
    (source / "pkg/mod.py").write_text("x = 1\n")
    (source / "run.sh").write_text("#!/bin/sh\necho ran")
    (source / "run.sh").chmod(0o755)
    (source / "out").symlink_to(secret)
    (source / "big").write_bytes(b"z" * 1_500_000)
    async with await create(backend, source=source) as sandbox:
        found = {f.path: f.type for f in await sandbox.list_files(recursive=True)}
        assert found["out"] == "link" and found["pkg/mod.py"] == "file"
        assert len(await sandbox.read_file("big")) == 1_500_000
        assert (await sandbox.run("./run.sh")).stdout == "ran\n"
        with pytest.raises(SandboxFileError):
            await sandbox.read_file("out")
    with pytest.raises(SourceError, match="no folder"):
        await create(backend, source=str(tmp_path / "missing"))


async def test_a_snapshot_is_what_another_sandbox_starts_from(backend: str) -> None:
    make = """
    mkdir -p d/e; echo deep > d/e/f; ln d/e/f hard; ln -s d/e/f soft; printf 'a\\0b' > bin
    echo home > ~/h; echo temp > /tmp/t; chmod 640 bin; chmod 750 d; touch -d '2001-02-03 UTC' d/e/f
    printf x > 'ü and \\ "quotes"'
    """
    look = """
    cat d/e/f soft ~/h /tmp/t; cmp d/e/f hard && stat -c '%n %a %u' bin d
    stat -c %Y d/e/f; ls | wc -l; od -An -c bin | tr -d ' '
    """
    async with await create(backend) as first:
        assert (await first.shell(make)).ok
        ticking = await first.start("sh", "-c", "while :; do echo t >> ~/ticks; sleep 0.01; done")
        before = await first.shell(look)
        kept = await first.snapshot()
        assert ticking.running and before.ok, before.stderr
    try:
        for _ in range(2):  # what one does to it is not seen by the next
            async with await create(backend, source=kept, disk="32mb", memory="256mb") as sandbox:
                after = await sandbox.shell(look)
                assert (after.stdout, after.exit_code) == (before.stdout, 0), after.stderr
                change = "rm -r d && echo more >> ~/h && chmod 600 bin && mv bin b2 && mkdir d"
                changed = await sandbox.shell(change)
                assert changed.ok, changed.stderr
                filled = await sandbox.shell("head -c 60000000 /dev/zero > big")
                assert not filled.ok and "space" in filled.stderr
        again = await create(source=kept.id, backend="auto")  # with what it was taken with
        assert again.backend == backend and kept.backend == backend
        await again.stop()
    finally:
        kept.delete()


async def test_a_snapshot_starts_with_the_backend_it_was_taken_with_alone(backend: str) -> None:
    other = "namespace" if backend == "gvisor" else "gvisor"
    async with await create(backend) as sandbox:
        kept = await sandbox.snapshot()
    try:
        with pytest.raises(SandboxError, match=f"taken with backend '{backend}'"):
            await create(other, source=kept)
        if backend == "namespace":
            with pytest.raises(SandboxUnavailable, match="weaker"):
                await create("auto", source=kept, min_isolation="gvisor")
    finally:
        kept.delete()


async def test_there_is_no_network_unless_allowed(backend: str) -> None:
    with serving() as port:
        async with await create(backend) as sandbox:
            result = await sandbox.shell(f"curl -sS -m 5 http://127.0.0.1:{port}/")
    assert result.exit_code == 7


async def test_allowed_hosts_are_reached_and_others_not(backend: str) -> None:
    with serving() as port, observed(shared_host()) as observer:
        rule = AllowedHost("api.test", to=f"127.0.0.1:{port}", headers={"x-key": "secret"})
        async with await create(backend, network=[rule]) as sandbox:
            inside = await sandbox.shell("curl -sS http://api.test/path; env; cat /proc/1/environ")
            other = await sandbox.shell("curl -sS -m 5 http://other.test/")
    assert "GET /path" in inside.stdout and "x-key: secret" in inside.stdout
    assert inside.stdout.count("secret") == 1, "the header may be seen in the answer only"
    assert other.exit_code == 6
    attempts = [(a.host, a.allowed) for a in observer.attempts]
    assert ("api.test", True) in attempts and ("other.test", False) in attempts


async def test_everything_is_told_to_observers(backend: str) -> None:
    with observed(shared_host()) as observer:
        async with await create(backend, memory="256mb") as sandbox:
            result = await sandbox.shell("echo four; exit 4")
        record = observer.sandboxes[sandbox.id]
        command = observer.commands[result.id]
    assert record.backend == backend and record.memory == 256 << 20
    assert record.stopped_at is not None and record.stopped_because == "stopped"
    assert command.argv == ("sh", "-c", "echo four; exit 4") and command.sandbox_id == sandbox.id
    assert (command.ended, command.exit_code, command.stdout_bytes) == ("exited", 4, 5)


async def test_two_sandboxes_know_nothing_of_one_another(backend: str) -> None:
    async with await create(backend) as one, await create(backend) as two:
        await one.write_files({"mine": "x", "/tmp/mine": "x"})
        running = await one.start("sleep", "60")
        seen = await two.shell("ls /workspace /tmp; ps ax 2>/dev/null | grep -c '[s]leep 60'")
        assert seen.stdout.split() == ["/tmp:", "/workspace:", "0"]
        assert running.running


# So much work, not so much time: where others want the processor, gVisor's own clock of it runs ahead.
BURN = "for _ in range(30_000_000): pass"


async def test_what_a_command_and_its_sandbox_used_is_told_and_on_record(backend: str) -> None:
    with observed(shared_host()) as observer:
        async with await create(backend, memory="512mb") as sandbox:
            quick = await sandbox.run("true")
            burnt = await sandbox.run("sh", "-c", f"python3 -S -c '{BURN}'; true")  # a child's
            held = await sandbox.run("python", "-c", f"x = b'x' * {64 << 20}")
    assert quick.cpu_seconds is not None and burnt.cpu_seconds is not None
    assert 0 < quick.cpu_seconds < burnt.cpu_seconds and burnt.cpu_seconds >= 0.25
    peaks = [each.peak_memory for each in (quick, burnt, held)]
    assert all(peak is not None and peak > 0 for peak in peaks)
    assert max(peaks) == held.peak_memory >= 64 << 20  # pyright: ignore
    kept = observer.commands[held.id]
    assert (kept.cpu_seconds, kept.peak_memory) == (held.cpu_seconds, held.peak_memory)
    whole = observer.sandboxes[sandbox.id]
    spent = sum(each.cpu_seconds or 0 for each in (quick, burnt, held))
    assert whole.cpu_seconds is not None and whole.cpu_seconds >= spent * 0.99
    assert whole.peak_memory == held.peak_memory


async def test_commands_beside_each_other_are_told_apart(backend: str) -> None:
    async with await create(backend, memory="512mb") as sandbox:
        busy, idle = await asyncio.gather(
            sandbox.run("python", "-c", f"x = b'x' * {64 << 20}\n{BURN}"),
            sandbox.run("sleep", "0.4"),
        )
    assert busy.cpu_seconds is not None and idle.cpu_seconds is not None
    assert busy.cpu_seconds >= 0.2 and idle.cpu_seconds < busy.cpu_seconds / 2
    assert busy.peak_memory is not None and busy.peak_memory >= 64 << 20
    assert idle.peak_memory is not None and idle.peak_memory < 64 << 20


async def test_entries_are_looked_up_and_renamed_without_following_links(backend: str) -> None:
    async with await create(backend) as sandbox:
        await sandbox.write_files({"a/one.txt": "12345"}, mode=0o640)
        await sandbox.shell("ln -s nowhere link")
        found = await sandbox.stat("a/one.txt")
        assert (found.path, found.type, found.size) == ("/workspace/a/one.txt", "file", 5)
        assert found.mode == 0o640
        assert (await sandbox.stat("a")).type == "dir"
        assert (await sandbox.stat("link")).type == "link"
        assert [await sandbox.exists(p) for p in ("a", "link", "b", "a/one.txt/x")] == [
            True,
            True,
            False,
            False,
        ]
        await sandbox.rename("a/one.txt", "b/c/two.txt")
        assert await sandbox.read_text("b/c/two.txt") == "12345"
        assert not await sandbox.exists("a/one.txt")
        for missing in (sandbox.stat("no"), sandbox.rename("no", "other")):
            with pytest.raises(SandboxFileError) as refused:
                await missing
            assert refused.value.errno == errno.ENOENT


async def test_its_time_can_be_shortened(backend: str) -> None:
    async with await create(backend, timeout=600) as sandbox:
        command = await sandbox.start("sleep", "600")
        sandbox.set_timeout(0.2)
        async with asyncio.timeout(LIMIT):
            assert (await command.wait()).ended is Ended.TIMED_OUT
        assert sandbox.record.timeout == 600
