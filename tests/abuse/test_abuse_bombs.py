"""Attempts to use up the host: each grows without end with the guard off, and ends inside.

With the guard off means in a sandbox with a larger limit, where the same program gets further;
none of them is let loose on the machine itself.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from holdfast.sandbox import Ended, Limit, Sandbox
from sandbox.support import create, require, until

MB = 1 << 20

MEMORY_BOMBS = {
    "one block": "x = bytearray({n})",
    "small pieces": "x = []\nwhile len(x) * 100_000 < {n}: x.append(bytearray(b'x' * 100_000))",
    "a private map": "import mmap\nm = mmap.mmap(-1, {n}, flags=2)\n"
    "for i in range(0, {n}, 4096): m[i] = 1",
    "a shared map": "import mmap\nm = mmap.mmap(-1, {n})\nfor i in range(0, {n}, 4096): m[i] = 1",
    "an unnamed file": "import os\nfd = os.memfd_create('x')\n"
    "for i in range({n} // 1_000_000): os.write(fd, b'x' * 1_000_000)",
    "many processes": "import os, time\nkids = []\nfor i in range(8):\n pid = os.fork()\n if pid == 0:\n"
    "  x = bytearray({n} // 8); time.sleep(1.5); os._exit(0)\n kids.append(pid)\n"
    "raise SystemExit(max(os.waitpid(p, 0)[1] for p in kids))",
    "shared memory files": "f = open('/dev/shm/x', 'wb')\n"
    "for i in range({n} // 1_000_000): f.write(b'x' * 1_000_000)\nf.flush()",
    "System V shared memory": "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\n"
    "s = libc.shmget(0, ctypes.c_size_t({n}), 0o1600)\nassert s >= 0\np = libc.shmat(s, None, 0)\n"
    "ctypes.memset(p, 1, {n})",
    "socket buffers": "import socket, os\nheld, total = [], 0\nwhile total < {n}:\n"
    " a, b = socket.socketpair(); a.setblocking(False); held += [a, b]\n"
    " a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)\n try:\n"
    "  while total < {n}: total += a.send(b'x' * 65536)\n except BlockingIOError: pass",
    "a dictionary": "d = {{}}\nwhile len(d) * 100 < {n}: d[len(d)] = 'x' * 50",
}


@pytest.mark.parametrize("bomb", MEMORY_BOMBS, ids=lambda name: name.replace(" ", "-"))
async def test_memory_ends_at_its_limit(bomb: str, backend: str) -> None:
    code = MEMORY_BOMBS[bomb].format(n=150 * MB)
    if bomb == "System V shared memory" and backend == "gvisor":
        pytest.skip("gVisor's System V shared memory is limited by itself")
    async with await create(backend, memory="600mb", disk="300mb") as roomy:
        outside = await roomy.run("python", "-c", code, timeout=30)
        assert outside.ok, f"void: it does not grow with room either\n{outside}\n{outside.stderr}"
    async with await create(backend, memory="64mb", disk="40mb") as sandbox:
        result = await sandbox.run("python", "-c", code, timeout=30)
    assert not result.ok
    if backend == "namespace":
        full = Limit.DISK in result.limits_hit
        assert result.ended is Ended.OUT_OF_MEMORY or full or "Error" in result.stderr, result


async def test_a_memory_bomb_kills_its_command_and_not_its_sandbox() -> None:
    async with await create(memory="64mb") as sandbox:
        assert (
            await sandbox.run("python", "-c", "x = bytearray(10**9)")
        ).ended is Ended.OUT_OF_MEMORY
        again = await sandbox.run("echo", "alive")
    assert again.stdout == "alive\n"


async def test_a_fork_bomb_ends_at_the_number_of_processes(backend: str) -> None:
    count = "import os, time\nn = 0\ntry:\n while n < 60:\n  if os.fork() == 0: time.sleep(20); os._exit(0)\n  n += 1\n"
    count += "except OSError: print(n); raise SystemExit(1)\nprint(n)"
    async with await create(backend, pids=200) as roomy:
        assert (await roomy.run("python", "-c", count, timeout=30)).stdout == "60\n"
    async with await create(backend, pids=20) as sandbox:
        result = await sandbox.run("python", "-c", count, timeout=30)
        if backend == "namespace":
            assert result.exit_code == 1 and int(result.stdout) <= 22
            assert Limit.PROCESSES in result.limits_hit
        assert not result.ok or backend == "gvisor"


@pytest.mark.parametrize(
    "code",
    [
        "import os\nwhile True:\n try: os.fork()\n except OSError: pass",
        "import threading, time\nwhile True:\n try: threading.Thread(target=time.sleep, args=(60,)).start()\n except RuntimeError: pass",
        "import os\nwhile True:\n try:\n  if os.fork() == 0: os._exit(0)\n except OSError: pass",
        "import os\nwhile True:\n try:\n  if os.fork() == 0:\n   os.setsid()\n   if os.fork(): os._exit(0)\n except OSError: pass",
    ],
    ids=["forks", "threads", "zombies", "daemons"],
)
async def test_a_bomb_of_processes_is_ended_and_the_host_stays_responsive(
    code: str, backend: str
) -> None:
    async with await create(backend, pids=64, cpus=0.5, memory="256mb") as sandbox:
        bomb = asyncio.create_task(sandbox.run("python", "-c", code, timeout=1.5))
        slowest = 0.0
        while not bomb.done():
            before = time.monotonic()
            await asyncio.sleep(0.01)
            slowest = max(slowest, time.monotonic() - before)
        result = bomb.result()
    assert not result.ok
    # Without its limits a fork bomb holds a host up for good; a busy one may be late by itself.
    assert slowest < 3.0, "the host was held up"


async def test_processor_time_is_shared_out() -> None:
    """A fifth of a processor takes at least five times as long, however busy the machine is."""
    burn = "import time\nbegan = time.monotonic()\nwhile time.process_time() < 0.4: pass\n"
    burn += "print(time.monotonic() - began)"
    held_back = {}
    for cpus in (1.0, 0.2):
        async with await create(cpus=cpus) as sandbox:
            taken = float((await sandbox.run("python", "-c", burn)).stdout)
            held_back[cpus] = _times_held_back(sandbox)
    assert taken > 1.2
    # On busy cores it seldom comes to use its share up at all.
    assert held_back[0.2] > max(2, 2 * held_back[1.0]), "void: a whole one is held back as much"


def _times_held_back(sandbox: Sandbox) -> int:
    for path in sandbox._instance.cgroup.paths:  # pyright: ignore
        stat = Path(path, "cpu.stat")
        if stat.is_file() and "nr_throttled" in stat.read_text():
            found = dict(line.split() for line in stat.read_text().splitlines())
            return int(found["nr_throttled"])
    pytest.skip("no cpu cgroup here")


FILES_BOMBS = {
    "one file": ("head -c {size} /dev/zero > f", Limit.DISK),
    "many files": (
        "i=0; while head -c 1000000 /dev/zero > f$i; do i=$((i+1)); "
        "test $i -ge {count} && exit 0; done; exit 1",
        Limit.DISK,
    ),
    "reserved space": ("fallocate -l {size} f", Limit.DISK),
}


@pytest.mark.parametrize("bomb", FILES_BOMBS, ids=lambda name: name.replace(" ", "-"))
async def test_files_end_at_the_disk_limit(bomb: str) -> None:
    code, limit = FILES_BOMBS[bomb]
    line = code.format(size=60 * MB, count=60)
    async with await create(memory="512mb", disk="200mb") as roomy:
        assert (await roomy.shell(line)).ok, "void: it fails with room too"
    async with await create(memory="512mb", disk="30mb") as sandbox:
        result = await sandbox.shell(line)
        assert not result.ok
        # A reservation that is refused leaves the disk as it was.
        assert limit in result.limits_hit or bomb == "reserved space"
        assert "No space left" in result.stderr


async def test_empty_files_end_at_the_inode_limit() -> None:
    code = "for i in range(3000): open(f'f{i}', 'w').close()"
    async with await create(inodes=20_000) as roomy:
        assert (await roomy.run("python", "-c", code)).ok
    async with await create(inodes=2000) as sandbox:
        result = await sandbox.run("python", "-c", code)
        assert not result.ok and Limit.INODES in result.limits_hit


async def test_open_files_end_at_their_limit(backend: str) -> None:
    code = "import os\nh = [os.open('/dev/null', 0) for _ in range(500)]"
    async with await create(backend, open_files=1024) as roomy:
        assert (await roomy.run("python", "-c", code)).ok
    async with await create(backend, open_files=100) as sandbox:
        result = await sandbox.run("python", "-c", code)
    assert not result.ok and "Too many open files" in result.stderr


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_flood_of_output_is_cut_off(stream: str, backend: str) -> None:
    code = f"import sys\nwhile True: sys.{stream}.write('x' * 10_000)"
    async with await create(backend) as sandbox:
        result = await sandbox.run("python", "-c", code, max_output=MB, timeout=30)
        assert result.ended is Ended.OUTPUT_LIMIT
        assert len(result.stdout_bytes) + len(result.stderr_bytes) == MB
        fine = await sandbox.run("python", "-c", "print('x' * 10_000)", max_output=MB)
        assert fine.ok


async def test_a_detached_flood_keeps_only_the_latest() -> None:
    async with await create() as sandbox:
        flood = await sandbox.start("yes", max_output=100_000)
        for _ in range(20):
            await until(lambda: len(flood.logs()) > 30_000)
            assert flood.running and len(flood.logs()) <= 200_000
            await asyncio.sleep(0.01)
        await flood.kill()


STUBBORN = {
    "ignores every signal it can": "import signal, time\n"
    "for n in range(1, 65):\n try: signal.signal(n, signal.SIG_IGN)\n except (OSError, ValueError): pass\n"
    "time.sleep(60)",
    "stops itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "double-forked": "import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0: time.sleep(60)\n os._exit(0)\ntime.sleep(60)",
    "in a tight loop": "while True: pass",
    "waits on a pipe": "import os\nr, w = os.pipe()\nos.read(r, 1)",
}


@pytest.mark.parametrize("kind", STUBBORN, ids=lambda name: name.replace(" ", "-"))
async def test_a_program_that_will_not_end_is_ended(kind: str, backend: str) -> None:
    async with await create(backend) as sandbox:
        result = await sandbox.run("python", "-c", STUBBORN[kind], timeout=0.6)
        assert result.ended is Ended.TIMED_OUT and result.seconds < 40
        began = time.monotonic()
        await sandbox.stop()
    assert time.monotonic() - began < 20


async def test_a_daemon_lives_on_after_its_command_but_not_after_its_sandbox(backend: str) -> None:
    code = "import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n"
    code += "  open('pid', 'w').write(str(os.getpid())); time.sleep(60)\n os._exit(0)\nos.wait()"
    async with await create(backend) as sandbox:
        assert (await sandbox.run("python", "-c", code)).ok
        await _wait_for_file(sandbox, "pid")
        pid = await sandbox.read_text("pid")
        assert (await sandbox.shell(f"kill -0 {pid}")).ok


async def _wait_for_file(sandbox: Sandbox, name: str) -> None:
    for _ in range(400):
        if any(f.path == name and f.size for f in await sandbox.list_files()):
            return
    raise AssertionError(f"{name} did not appear")


@pytest.mark.parametrize("number", ["KILL", "STOP", "TERM", "INT", "SEGV", "HUP", "ALRM", "CHLD"])
async def test_the_agent_can_not_be_signalled_from_inside(number: str, backend: str) -> None:
    async with await create(backend) as sandbox:
        victim = await sandbox.start("sleep", "60")
        await sandbox.shell(f"kill -{number} 1; kill -{number} {victim.pid}")
        assert (await sandbox.run("echo", "alive", timeout=10)).stdout == "alive\n"
        if number in ("KILL", "TERM", "INT", "SEGV", "HUP", "ALRM"):
            assert (await victim.wait()).ended is Ended.SIGNALLED, "void: the signal kills nobody"


LURKER = """
import os, sys, time
known = {1, os.getpid()}
if os.fork():
    os._exit(0)
os.setsid()
for fd in (0, 1, 2): os.close(fd)
known.add(os.getpid())
end, others = time.monotonic() + 20, set()
while not others and time.monotonic() < end:
    others = {int(p) for p in os.listdir("/proc") if p.isdigit()} - known
done = set()
for pid in [*others] * 50:
    for what, act in {
        "stopped": lambda: os.kill(pid, 19),
        "killed": lambda: os.kill(pid, 9),
        "read": lambda: open(f"/proc/{pid}/mem", "rb").read(1),
    }.items():
        try: act(); done.add(what)
        except OSError: pass
    time.sleep(0.01)  # it may just be on its way
open("half", "w").write(repr((len(others), sorted(done))))
os.rename("half", "told")
time.sleep(60)
"""


async def test_who_waits_to_become_a_command_is_not_to_be_had(sandbox_state: str) -> None:
    """On gVisor one is forked ahead; a process left behind is alone with it for a while."""
    require("gvisor")
    async with await create("gvisor") as sandbox:
        assert (await sandbox.run("python", "-c", LURKER)).ok
        while not any(file.path == "told" for file in await sandbox.list_files()):
            await asyncio.sleep(0.2)  # it is made while nothing is asked
        assert await sandbox.read_text("told") == "(1, [])"
        assert (await sandbox.run("echo", "alive", timeout=20)).stdout == "alive\n"


async def test_killing_everybody_kills_only_the_sandbox(backend: str) -> None:
    async with await create(backend) as sandbox, await create(backend) as other:
        victim, bystander = await sandbox.start("sleep", "60"), await other.start("sleep", "60")
        await sandbox.run("python", "-c", "import os; os.kill(-1, 9)")
        assert (await victim.wait()).ended is Ended.SIGNALLED
        assert bystander.running
        assert (await sandbox.run("echo", "alive")).stdout == "alive\n"


async def test_a_hundred_sandboxes_at_once_come_and_go() -> None:
    async def one(number: int) -> str:
        async with await create(memory="64mb") as sandbox:
            return (await sandbox.run("echo", str(number))).stdout.strip()

    said = await asyncio.gather(*(one(n) for n in range(100)))
    assert said == [str(n) for n in range(100)]
