"""Attacks on the agent by what it serves: it must go on, and time limits must hold without it."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

import pytest

from holdfast.sandbox import Ended
from sandbox.support import create, require

DRAIN = """
import os
def pipes():
    for name in os.listdir('/proc/1/fd'):
        path = f'/proc/1/fd/{name}'
        try:
            if 'pipe' in os.readlink(path):
                yield os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            pass
if os.fork():
    os._exit(0)
os.setsid()
while True:
    try:
        taken = list(pipes())
    except OSError:
        taken = []
    for _ in range(50):
        for fd in taken:
            try:
                os.read(fd, 65536)
            except OSError:
                pass
    for fd in taken:
        os.close(fd)
"""


async def test_whoever_reads_the_agent_s_pipes_can_t_keep_it_from_seeing_commands_end(
    backend: str,
) -> None:
    async with await create(backend) as sandbox:
        await sandbox.run("python", "-c", DRAIN, timeout=30)
        for _ in range(4):
            async with asyncio.timeout(60):
                result = await sandbox.run("sh", "-c", "echo out; exit 3", timeout=30)
            assert (result.ended, result.exit_code) == (Ended.EXITED, 3)
        assert sandbox.running


async def test_a_time_limit_holds_in_a_sandbox_that_is_kept_busy(backend: str) -> None:
    burn = (
        "import os\nfor _ in range(100):\n    if os.fork() == 0:\n        break\nwhile True: pass\n"
    )
    async with await create(backend) as sandbox:
        began = time.monotonic()
        result = await sandbox.run("python", "-c", burn, timeout=2)
        assert result.ended is Ended.TIMED_OUT
        assert time.monotonic() - began < 30


async def test_a_time_limit_holds_when_the_agent_does_nothing_any_more() -> None:
    require("namespace")
    async with await create() as sandbox:
        command = await sandbox.start("sleep", "600", timeout=1)
        instance: Any = sandbox._instance
        signal.pidfd_send_signal(instance.pidfd, signal.SIGSTOP)  # as if it were starved
        async with asyncio.timeout(60):
            result = await command.wait()
        assert result.ended is Ended.TIMED_OUT
        assert not sandbox.running


SCAN = """
import re
found = set()
memory = open('/proc/self/mem', 'rb', 0)
for line in open('/proc/self/maps'):
    place, rights = line.split()[:2]
    if 'r' not in rights or '[v' in line:
        continue
    start, end = (int(each, 16) for each in place.split('-'))
    while start < end:
        try:
            memory.seek(start)
            data = memory.read(min(end - start, 4 << 20))
        except (OSError, OverflowError, ValueError):
            break
        if not data:
            break
        found |= set(re.findall(rb'CANARY_[A-Z0-9]+_', data))
        start += len(data)
print(sorted(each.decode() for each in found))
"""


async def test_a_script_finds_nothing_in_its_memory_of_what_others_were_given(backend: str) -> None:
    async with await create(backend, env={"OWN": "x"}) as sandbox:
        for number in range(3):
            env = {"SECRET": f"CANARY_ENV{number}_"}
            await sandbox.run("cat", env=env, stdin=f"CANARY_INPUT{number}_" * 20)
            await sandbox.run("python", "-c", "print(1)", f"CANARY_WORD{number}_", env=env)
        await sandbox.write_files({"gone": "CANARY_FILE_" * 100})
        await sandbox.read_file("gone")
        await sandbox.remove("gone")
        found = await sandbox.run("python", "-c", SCAN, env={"OWN": "CANARY_OWN_"})
        assert found.stdout == "['CANARY_OWN_']\n", found.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_scripts_run_on_without_the_process_they_are_forked_from(
    backend: str, number: int
) -> None:
    attack = f"import os\ntry:\n    os.kill(-1, {number})\nexcept OSError:\n    pass\n"
    async with await create(backend) as sandbox:
        assert (await sandbox.run("python", "-c", "print(1)")).stdout == "1\n"
        await sandbox.run("python", "-c", attack, timeout=30)
        for _ in range(2):
            result = await sandbox.run("python", "-c", "print(2)", timeout=30)
            assert (result.stdout, result.exit_code) == ("2\n", 0), result
        assert sandbox.running


async def test_the_end_of_a_script_is_seen_that_outlives_what_it_was_forked_from() -> None:
    require("namespace")
    attack = "import os\nprint(1, flush=True)\ninput()\nos.kill(-1, 9)\nraise SystemExit(5)"
    async with await create() as sandbox:
        last = await sandbox.start("python", "-c", attack, stdin=True)
        async for _ in last:
            break
        async with asyncio.timeout(60):
            await last.write_stdin("\n")
            assert (await last.wait()).exit_code == 5
        assert (await sandbox.run("echo", "on")).stdout == "on\n"
