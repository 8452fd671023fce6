"""Ports, terminals and commands by id: what every backend must do, from this process and others."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.errors import NotFound, PortClosed, SandboxGone, UsageError
from holdfast.sandbox import Ended, Host, Sandbox, Stream, Terminal
from sandbox import support
from sandbox.fixtures import backend, sandbox_state
from sandbox.support import observed, shared_host, until
from waiting import LIMIT

__all__ = ["backend", "sandbox_state"]

ECHO = """
import socket, threading
server = socket.create_server(("127.0.0.1", 8000))
print("up", flush=True)
def serve(connection):
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],)).start()
"""


async def create(backend: str) -> Sandbox:
    return await support.create(backend, timeout=LIMIT)


@asynccontextmanager
async def seen_from_elsewhere(sandbox: Sandbox) -> AsyncIterator[Sandbox]:
    """The same sandbox as another process sees it: through the control socket."""
    host = Host(shared_host().state, pool=0)
    try:
        handle = await Sandbox.get(sandbox.id, host=host)
        yield handle
        handle.release()
    finally:
        await host.aclose()


async def listening(sandbox: Sandbox, code: str = ECHO) -> None:
    up = asyncio.Event()
    await sandbox.start("python", "-c", code, on_stdout=lambda _: up.set())
    async with asyncio.timeout(LIMIT):
        await up.wait()


async def all_of(stream: Stream) -> bytes:
    data = b""
    async with asyncio.timeout(LIMIT):
        while piece := await stream.read():
            data += piece
    return data


async def shown(terminal: Terminal, text: str) -> str:
    """What a terminal shows, up to this text."""
    seen = ""
    async with asyncio.timeout(LIMIT):
        while text not in seen:
            piece = await terminal.read()
            assert piece, seen
            seen += piece.decode()
    return seen


# ------------------------------------------------------------------------------- ports


async def test_a_server_inside_is_reached_by_its_port(backend: str) -> None:
    data = bytes(range(256)) * 8_000  # several windows
    async with await create(backend) as sandbox:
        await listening(sandbox)
        async with await sandbox.dial(8000) as stream, asyncio.TaskGroup() as group:
            back = group.create_task(all_of(stream))
            await stream.write(data)
            stream.write_eof()
        assert back.result() == data


async def test_a_server_inside_is_reached_from_another_process(backend: str) -> None:
    data = bytes(range(256)) * 5_000
    async with await create(backend) as sandbox:
        await listening(sandbox)
        async with seen_from_elsewhere(sandbox) as handle:
            async with await handle.dial(8000) as stream, asyncio.TaskGroup() as group:
                back = group.create_task(all_of(stream))
                await stream.write(data)
                stream.write_eof()
            assert back.result() == data


async def test_a_port_where_nobody_listens_is_said_to_be_closed(backend: str) -> None:
    async with await create(backend) as sandbox:
        with pytest.raises(PortClosed, match="8001"):
            await sandbox.dial(8001)
        with pytest.raises(PortClosed, match="no port"):
            await sandbox.dial(70_000)
        code = ECHO.replace('("127.0.0.1", 8000)', '("::1", 8000), family=socket.AF_INET6')
        await listening(sandbox, code)
        async with await sandbox.dial(8000) as stream:
            await stream.write(b"six")
            assert await stream.read() == b"six"


async def test_a_slow_reader_holds_up_its_own_stream_and_nothing_else(backend: str) -> None:
    flood = ECHO.replace(
        "while data := connection.recv(65536):\n            connection.sendall(data)",
        "connection.sendall(b'x' * 2_000_000)",
    )
    async with await create(backend) as sandbox:
        await listening(sandbox, flood)
        async with await sandbox.dial(8000) as stream:
            assert await stream.read(1) == b"x"
            # The rest waits inside; commands and other streams go on.
            assert (await sandbox.run("echo", "on")).stdout == "on\n"
            async with await sandbox.dial(8000) as other:
                assert len(await all_of(other)) == 2_000_000
            assert stream._held <= 256 * 1024
            assert len(await all_of(stream)) == 2_000_000 - 1


async def test_streams_end_with_their_sandbox_and_connections_with_their_stream(
    backend: str,
) -> None:
    told = ECHO.replace(
        "with connection:\n", "with connection:\n        print('open', flush=True)\n"
    )
    told = told.replace("connection.sendall(data)", "pass\n        print('closed', flush=True)")
    said: list[str] = []
    async with await create(backend) as sandbox:
        await sandbox.start("python", "-c", told, on_stdout=said.append)
        await until(lambda: "up" in "".join(said))
        stream = await sandbox.dial(8000)
        await until(lambda: "open" in "".join(said))
        stream.close()
        await until(lambda: "closed" in "".join(said))
        assert await stream.read() == b""
        with pytest.raises(SandboxGone):
            await stream.write(b"x")
        left = await sandbox.dial(8000)
    assert await left.read() == b""
    with pytest.raises(SandboxGone):
        await left.write(b"x")


async def test_a_client_that_goes_takes_its_connections_with_it(backend: str) -> None:
    said: list[str] = []
    told = ECHO.replace("connection.sendall(data)", "pass\n        print('closed', flush=True)")
    async with await create(backend) as sandbox:
        await sandbox.start("python", "-c", told, on_stdout=said.append)
        await until(lambda: "up" in "".join(said))
        async with seen_from_elsewhere(sandbox) as handle:
            await handle.dial(8000)
        await until(lambda: "closed" in "".join(said))


# --------------------------------------------------------------------------- terminals


async def test_a_terminal_is_typed_into_and_looked_at(backend: str) -> None:
    async with await create(backend) as sandbox:
        terminal = await sandbox.terminal("sh", columns=100, rows=30, env={"PS1": "> "})
        await terminal.write(b"stty size; tty; echo $TERM\n")
        seen = await shown(terminal, "xterm-256color")
        assert "30 100" in seen and "/dev/pts/" in seen
        await terminal.resize(120, 40)
        await terminal.write(b"stty size\n")
        await shown(terminal, "40 120")
        await terminal.write(b"exit 7\n")
        result = await terminal.wait()
        assert (result.ended, result.exit_code) == (Ended.EXITED, 7)
        assert "40 120" in result.stdout
        assert await all_of(terminal) is not None
        with pytest.raises(UsageError):
            await sandbox.terminal("sh", columns=0)


async def test_ctrl_c_in_a_terminal_interrupts_the_program_in_front(backend: str) -> None:
    async with await create(backend) as sandbox:
        async with await sandbox.terminal("sh", env={"PS1": "> "}) as terminal:
            await terminal.write(b"sleep 600; echo after $?\n")
            await shown(terminal, "sleep 600")
            listed = [info for info in await sandbox.commands() if info.terminal]
            assert [info.id for info in listed] == [terminal.id]

            async def sleeping() -> bool:
                found = await sandbox.shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
                return "sleep 600" in found.stdout

            async with asyncio.timeout(LIMIT):
                while not await sleeping():
                    pass
            # On a line of its own: gVisor's terminal passes the character on as well.
            await terminal.write(b"\x03")
            await terminal.write(b"\necho still $((40 + 2))\n")
            await shown(terminal, "still 42")


async def test_a_terminal_that_is_closed_hangs_up_on_its_shell(backend: str) -> None:
    async with await create(backend) as sandbox:
        with observed(shared_host()) as told:
            terminal = await sandbox.terminal("sh")
            terminal.close()
            result = await terminal.wait()
            assert result.ended is Ended.SIGNALLED and result.signal == signal.SIGHUP
            assert told.commands[terminal.id].ended == "signalled"


async def test_a_terminal_of_another_process_works_and_ends_with_it(backend: str) -> None:
    async with await create(backend) as sandbox:
        async with seen_from_elsewhere(sandbox) as handle:
            terminal = await handle.terminal("sh", columns=91, rows=17)
            await terminal.write(b"stty size\n")
            await shown(terminal, "17 91")
            await terminal.resize(92, 18)
            await terminal.write(b"stty size\n")
            await shown(terminal, "18 92")
            mine = await sandbox.get_command(terminal.id)
        assert (await mine.wait()).signal == signal.SIGHUP


async def test_what_a_terminal_floods_with_waits_for_its_reader(backend: str) -> None:
    async with await create(backend) as sandbox:
        code = "import sys; sys.stdout.write('y' * 900_000 + 'END'); sys.stdout.flush()"
        terminal = await sandbox.terminal("python", "-c", code)
        assert await terminal.read(1) == b"y"
        assert (await sandbox.run("echo", "on")).stdout == "on\n"
        assert terminal.command.running
        assert (await all_of(terminal)).endswith(b"END")
        assert (await terminal.wait()).ok


# ---------------------------------------------------------------------- commands by id


async def test_commands_are_listed_followed_and_signalled_by_id(backend: str) -> None:
    async with await create(backend) as sandbox:
        assert await sandbox.commands() == []
        command = await sandbox.start(
            "sh", "-c", "trap 'echo bye; exit 3' TERM; echo first; read x", stdin=True
        )
        await until(lambda: "first" in command.logs())
        (info,) = await sandbox.commands()
        assert info == command.info
        assert info.argv[0] == "sh" and info.cwd == "/workspace" and info.running
        again = await sandbox.get_command(command.id)
        await again.kill(signal.SIGTERM)
        assert (await again.wait()).exit_code == 3
        assert await sandbox.commands() == []
        assert (await sandbox.get_command(command.id)).logs() == "first\nbye\n"
        with pytest.raises(NotFound):
            await sandbox.get_command("cmd_none")


async def test_a_command_is_found_and_ended_from_another_process(backend: str) -> None:
    async with await create(backend) as sandbox:
        command = await sandbox.start(
            "sh", "-c", "echo first; read x; echo got $x; exec sleep 600", stdin=True
        )
        await until(lambda: "first" in command.logs())
        async with seen_from_elsewhere(sandbox) as handle:
            (info,) = await handle.commands()
            assert info == command.info
            there = await handle.get_command(info.id)
            assert (there.pid, there.argv) == (command.pid, command.argv)
            assert await there.write_stdin("line\n")
            await until(lambda: there.logs() == "first\ngot line\n")
            await there.kill(signal.SIGINT)
            result = await there.wait()
            assert (result.ended, result.signal) == (Ended.SIGNALLED, signal.SIGINT)
            assert (await command.wait()).signal == signal.SIGINT
            with pytest.raises(NotFound):
                await handle.get_command("cmd_none")


async def test_a_command_outlives_the_process_that_started_it_and_is_found_again(
    backend: str,
) -> None:
    async with await create(backend) as sandbox:
        async with seen_from_elsewhere(sandbox) as handle:
            started = await handle.start(
                "sh", "-c", "echo first; read x; echo got $x; exit 5", stdin=True
            )
            await until(lambda: "first" in started.logs())
        (info,) = await sandbox.commands()
        assert info.id == started.id
        async with seen_from_elsewhere(sandbox) as other:
            found = await other.get_command(started.id)
            await found.write_stdin("line\n")
            result = await found.wait()
        assert (result.exit_code, result.stdout) == (5, "first\ngot line\n")


async def test_many_follow_one_command_and_each_hears_all_of_it(backend: str) -> None:
    async with await create(backend) as sandbox:
        line = "read x; i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done"
        command = await sandbox.start("sh", "-c", line, stdin=True)
        async with seen_from_elsewhere(sandbox) as one, seen_from_elsewhere(sandbox) as two:
            followers = [await h.get_command(command.id) for h in (one, two)]
            await command.write_stdin("go\n")
            results = [await each.wait() for each in (command, *followers)]
    whole = "".join(f"line {i}\n" for i in range(2000))
    assert [result.stdout for result in results] == [whole] * 3
