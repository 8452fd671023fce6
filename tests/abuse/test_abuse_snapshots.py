"""Snapshots of a sandbox that runs on while it is copied, and changes what is being copied."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from holdfast.errors import SandboxError
from holdfast.sandbox import Command
from sandbox.support import create, require

WAKES_ITSELF = """
import ctypes, os, random, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
class Event(ctypes.Structure):
    _fields_ = [('value', ctypes.c_void_p), ('signal', ctypes.c_int), ('notify', ctypes.c_int),
                ('rest', ctypes.c_char * 48)]
libc.signal(signal.SIGCONT, ctypes.cast(libc.getpid, ctypes.c_void_p))
for _ in range(60):
    event, timer = Event(None, signal.SIGCONT, 0), ctypes.c_int()
    assert libc.syscall(222, 1, ctypes.byref(event), ctypes.byref(timer)) == 0
    every = random.randrange(5_000_000, 25_000_000)
    times = (ctypes.c_long * 4)(0, every, 0, every)
    assert libc.syscall(223, timer, 0, times, None) == 0
def again(call, *arguments):
    while True:
        try:
            return call(*arguments)
        except InterruptedError:
            pass
"""
CUT = """
fd = os.open('/workspace/big', os.O_RDWR | os.O_CREAT)
for place in range(100):
    again(os.pwrite, fd, b'x' * (1 << 20), place << 20)
read = again(os.fstat, fd).st_atime_ns
print('ready', flush=True)
while again(os.fstat, fd).st_atime_ns == read:
    pass
os.ftruncate(fd, 0)
print('cut', flush=True)
time.sleep(600)
"""
GROW = """
piece, count = b'x' * (1 << 20), 20
files = [os.open(f'/workspace/g{n:03}', os.O_RDWR | os.O_CREAT) for n in range(count)]
def fill(n):
    for place in range(20):
        again(os.pwrite, files[n], piece, place << 20)
def read(n):
    return again(os.fstat, files[n]).st_atime_ns
fill(0)
fill(count - 1)
before = read(0), read(count - 1)
print('ready', flush=True)
while (read(0), read(count - 1)) == before:
    pass
at, step = (0, 1) if read(0) != before[0] else (count - 1, -1)
os.ftruncate(files[count - 1 - at], 0)
while 0 <= at + step < count:
    fill(at + step)
    then = read(at + step)
    until = time.time() + 3
    while read(at + step) == then and time.time() < until:
        pass
    os.ftruncate(files[at], 0)
    at += step
time.sleep(600)
"""
TICK = """
n = 0
print('ready', flush=True)
while True:
    n += 1
    fd = again(os.open, '/workspace/ticks', os.O_WRONLY | os.O_CREAT)
    again(os.write, fd, f'{n:012}'.encode())
    os.close(fd)
"""


async def said(command: Command, what: str) -> None:
    while what not in command.logs():
        assert command.running, command.logs()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("attack", ["cut", "grow"])
async def test_a_snapshot_of_files_that_change_meanwhile_ends_and_stays_within_the_limit(
    backend: str, attack: str
) -> None:
    async with await create(backend, memory="512mb", disk="128mb", timeout=110) as sandbox:
        code = WAKES_ITSELF + (CUT if attack == "cut" else GROW)
        await said(await sandbox.start("python", "-c", code), "ready")
        async with asyncio.timeout(90):
            try:
                snapshot = await sandbox.snapshot()
            except SandboxError as error:
                assert "changed" in error.message or "may have" in error.message
            else:
                roots = 1 if backend == "namespace" else 3
                assert snapshot.size <= roots * (128 << 20)
                snapshot.delete()
        assert (await sandbox.run("echo", "on")).stdout == "on\n"


async def test_a_program_that_wakes_itself_stays_frozen_while_its_files_are_copied() -> None:
    require("namespace")
    async with await create() as sandbox:
        instance: Any = sandbox._instance
        command = await sandbox.start("python", "-c", WAKES_ITSELF + TICK)
        await said(command, "ready")

        def ticks() -> bytes:
            fd = os.open("workspace/ticks", os.O_RDONLY, dir_fd=instance.upper)
            try:
                return os.read(fd, 64)
            finally:
                os.close(fd)

        while not await sandbox.list_files():
            await asyncio.sleep(0.01)
        if not await asyncio.to_thread(instance.freeze):
            pytest.skip("no cgroup of this host can freeze")
        before = ticks()
        await asyncio.sleep(0.3)
        assert ticks() == before
        instance.thaw()
        while ticks() == before:
            await asyncio.sleep(0.01)


async def test_a_frozen_sandbox_can_be_stopped() -> None:
    require("namespace")
    sandbox = await create()
    await asyncio.to_thread(sandbox._instance.freeze)
    async with asyncio.timeout(30):
        await sandbox.stop()
