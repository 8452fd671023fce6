"""Attacks on the agent by what it serves: it must go on, and time limits must hold without it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

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
        os.kill(instance.pid, signal.SIGSTOP)  # as if it were starved
        async with asyncio.timeout(60):
            result = await command.wait()
        assert result.ended is Ended.TIMED_OUT
        assert not sandbox.running
