"""One sandbox against its neighbours, its host and its own agent: what the kernel counts for many.

Each attack holds as much of something as it gets. A neighbour, a new sandbox and the host must
have theirs all the same, and the attacker's own agent must go on serving it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
from pathlib import Path

import pytest

from holdfast.sandbox import Command, Ended, Sandbox
from holdfast.sandbox.namespace import uids
from sandbox.support import create, require, shared_host

HOLD = {
    "descriptors in flight": """
import array, os, socket
kept = []
fd = os.open('/dev/null', 0)
while True:
    try:
        a, b = socket.socketpair()
        a.setblocking(False)
        kept.append((a, b))
        while True:
            a.sendmsg([b'x'], [(1, 1, array.array('i', [fd] * 250))])
    except BlockingIOError:
        pass
    except OSError:
        break
""",
    "inotify instances": """
import ctypes
libc = ctypes.CDLL(None)
while libc.inotify_init1(0) >= 0:
    pass
""",
    "pipe memory": """
import fcntl, os
kept = []
try:
    while True:
        kept.append(os.pipe())
        fcntl.fcntl(kept[-1][1], 1031, 1 << 20)
except OSError:
    pass
""",
    "asynchronous I/O": """
import ctypes
libc = ctypes.CDLL(None)
size, kept = 1 << 15, []
while size:
    context = ctypes.c_ulong(0)
    if libc.syscall(206, size, ctypes.byref(context)) == 0:
        kept.append(context)
    else:
        size //= 2
""",
    "terminals": """
import os
for _ in range(5):
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            while True:
                os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY)
        except OSError:
            os.write(writing, b'.')
        import time
        time.sleep(600)
    os.read(reading, 1)
""",
}
WAIT = "\nprint('held', flush=True)\nimport time\ntime.sleep(600)\n"
NEEDED = """
import array, ctypes, fcntl, os, socket
libc = ctypes.CDLL(None, use_errno=True)
lacking = []
a, b = socket.socketpair()
try:
    a.sendmsg([b'x'], [(1, 1, array.array('i', [0]))])
except OSError as error:
    lacking.append(f'sending a descriptor: {error}')
if libc.inotify_init1(0) < 0:
    lacking.append('inotify')
if fcntl.fcntl(os.pipe()[1], 1032) < 65536:
    lacking.append('a pipe of the usual size')
try:
    os.openpty()
except OSError as error:
    lacking.append(f'a terminal: {error}')
print(lacking)
"""


async def said(command: Command, what: str) -> None:
    while what not in command.logs():
        assert command.running, command.logs()
        await asyncio.sleep(0.01)


async def outside() -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", NEEDED, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    return told.decode().strip()


@pytest.mark.parametrize("what", list(HOLD))
async def test_what_one_sandbox_uses_up_its_neighbours_and_the_host_still_have(
    backend: str, what: str
) -> None:
    if backend == "namespace" and os.geteuid() != 0:
        pytest.skip("without root all sandboxes are one kernel user, and doctor says so")
    async with await create(backend) as neighbour, await create(backend) as attacker:
        held = await attacker.start("python", "-c", HOLD[what] + WAIT, timeout=20)
        # With a kernel of its own it may run into its memory limit first, which is as good.
        while held.running and "held" not in held.logs():
            await asyncio.sleep(0.01)
        assert (await neighbour.run("python", "-c", NEEDED)).stdout.strip() == "[]"
        assert await outside() == "[]"
        async with await create(backend) as another:
            assert (await another.run("echo", "there")).stdout == "there\n"
        # A pool the whole machine shares is closed to it, not only made smaller.
        if what == "asynchronous I/O" and backend == "namespace":
            assert int(Path("/proc/sys/fs/aio-nr").read_text()) < 1 << 15


TOUCH_AGENT = """
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
done = []
for limit in range(16):
    if libc.syscall(302, 1, limit, struct.pack('QQ', 0, 0), 0) == 0:
        done.append(f'limit {limit}')
for policy in (os.SCHED_IDLE, os.SCHED_BATCH):
    try:
        os.sched_setscheduler(1, policy, os.sched_param(0))
        done.append('policy')
    except OSError:
        pass
for kind, who in ((0, 1), (2, 0), (2, os.getuid())):
    try:
        os.setpriority(kind, who, 19)
        done.append(f'priority by {kind}')
    except OSError:
        pass
try:
    os.sched_setaffinity(1, {0})
    done.append('affinity')
except OSError:
    pass
if libc.syscall(251, 1, 1, (3 << 13)) == 0 or libc.syscall(251, 3, 0, (3 << 13)) == 0:
    done.append('priority of its I/O')
print(done)
"""


async def test_a_command_can_t_change_limits_or_scheduling_of_the_agent() -> None:
    require("namespace")
    async with await create() as sandbox:
        result = await sandbox.run("python", "-c", TOUCH_AGENT)
        assert result.stdout == "[]\n", result.stdout + result.stderr
        assert (await sandbox.run("echo", "hi")).stdout == "hi\n"


async def test_the_agent_serves_on_after_a_command_tried_to_take_its_limits(backend: str) -> None:
    async with await create(backend) as sandbox:
        await sandbox.run("python", "-c", TOUCH_AGENT)
        await sandbox.write_files({"a": "x" * 100})
        assert await sandbox.read_text("a") == "x" * 100
        assert (await sandbox.run("python", "-c", "print(1)")).stdout == "1\n"


async def test_programs_may_still_set_their_own_limits_and_priority(backend: str) -> None:
    own = (
        "import os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (99, 99))\nos.nice(3)\n"
        "os.sched_setaffinity(0, os.sched_getaffinity(0))\nprint(resource.getrlimit(7), os.nice(0))"
    )
    async with await create(backend) as sandbox:
        assert (await sandbox.run("python", "-c", own)).stdout == "(99, 99) 3\n"


async def test_a_lease_on_a_file_can_t_make_the_agent_wait() -> None:
    require("namespace")
    lease = (
        "import fcntl, os\nopen('f', 'w').write('x')\nfd = os.open('f', os.O_RDWR)\n"
        "try:\n    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK); print('leased')\n"
        "except OSError as e:\n    print('refused')\n"
    )
    async with await create() as sandbox:
        assert (await sandbox.run("python", "-c", lease)).stdout == "refused\n"


async def test_a_lock_on_a_file_of_the_host_s_is_not_the_host_s(backend: str) -> None:
    lock = (
        "import fcntl, os, time\nfd = os.open('/usr/bin/env', os.O_RDONLY)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\nprint('locked', flush=True)\ntime.sleep(600)\n"
    )
    async with await create(backend) as sandbox:
        holder = await sandbox.start("python", "-c", lock)
        await said(holder, "locked")
        fd = os.open("/usr/bin/env", os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(fd)


async def test_mounts_tell_no_path_of_the_host(backend: str) -> None:
    async with await create(backend) as sandbox:
        told = await sandbox.shell("cat /proc/self/mountinfo /proc/self/mounts")
        hidden = {str(shared_host().state), sys.prefix, os.path.realpath(sys.base_prefix)}
        assert told.stdout
        assert not [path for path in hidden if path in told.stdout and path != "/usr"]


async def test_every_live_sandbox_of_a_root_host_has_a_kernel_user_of_its_own() -> None:
    require("namespace")
    if os.geteuid() != 0:
        pytest.skip("only root can give them users")
    made: list[Sandbox] = [await create() for _ in range(3)]
    try:
        maps = [(await s.run("cat", "/proc/self/uid_map")).stdout.split()[1] for s in made]
        assert len(set(maps)) == 3 and str(uids.FIRST) not in maps
        # Files it starts from are its own, from a snapshot as well, and of a second one too.
        await made[0].write_files({"kept": "1"})
        snapshot = await made[0].snapshot()
        async with await create(source=snapshot) as one, await create(source=snapshot) as two:
            for each in (one, two):
                ended = await each.shell("echo 2 >> kept && echo x >> /etc/hosts && cat kept")
                assert (ended.ended, ended.stdout) == (Ended.EXITED, "12\n"), ended.stderr
        snapshot.delete()
    finally:
        await asyncio.gather(*(each.stop() for each in made))


def test_hosts_never_hand_out_the_same_user(tmp_path: Path) -> None:
    one, two = uids.Uids(tmp_path), uids.Uids(tmp_path)
    mine = [one.take() for _ in range(uids.BLOCK + 1)]
    others = [two.take() for _ in range(3)]
    assert len(set(mine)) == len(mine) and not set(mine) & set(others)
    one.give_back(mine[0])
    assert one.take() == mine[0]
    one.close()
    assert uids.Uids(tmp_path).take() == mine[0]
    two.close()
