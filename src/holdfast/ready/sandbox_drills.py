"""Drills in real sandboxes: limits, the way out, secrets, isolation, and what a kill leaves behind.

They use the backend that the project's configuration asks for, on this machine. Where no backend
works, nothing was exercised.
"""

from __future__ import annotations

import ast
import asyncio
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import SandboxUnavailable
from holdfast.ready.look import Look
from holdfast.ready.source_code import keyword
from holdfast.ready.static_points import creates, uses_sandboxes
from holdfast.sandbox.base import Isolation
from holdfast.sandbox.command import Ended
from holdfast.sandbox.sandbox import Sandbox
from holdfast.sandbox.settings import load
from holdfast.sandbox.spec import Limits, size

if TYPE_CHECKING:
    from holdfast.ready.drill import Drill, Stage

AT_ONCE = 20
_WAIT = 60.0


def _in_sandboxes(drill: Callable[[Look, Stage], Any]) -> Drill:
    @wraps(drill)
    async def carried_out(look: Look, stage: Stage) -> None:
        if not uses_sandboxes(stage.sources):
            look.not_applicable("the project makes no sandboxes")
            return
        try:
            await drill(look, stage)
        except SandboxUnavailable as error:
            look.skip(f"no sandbox can be made here: {error.message}")

    return carried_out


async def _made(**options: Any) -> Sandbox:
    settings = load()
    return await Sandbox.create(
        timeout="2m", backend=settings.backend, min_isolation=settings.min_isolation, **options
    )


_HOLDER = """
import asyncio, sys
from holdfast import Sandbox
async def main():
    sandbox = await Sandbox.create(timeout="5m", memory="128mb")
    await sandbox.start("python3", "-c", "import time; time.sleep(300)", sys.argv[1])
    print(sandbox.id, flush=True)
    await asyncio.sleep(300)
asyncio.run(main())
"""


async def no_orphans(look: Look, stage: Stage) -> None:
    """Kill -9 a process with a sandbox; every process of the sandbox has to go."""
    marker = f"holdfast-doctor-{secrets.token_hex(8)}"
    holder = subprocess.Popen(  # noqa: ASYNC220 - it only begins
        [sys.executable, "-c", _HOLDER, marker], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        id = (await asyncio.to_thread(holder.stdout.readline)).strip()
        if not id:
            look.skip("no sandbox could be made by a process of its own")
            return
        before = await _until(lambda: _with_words(marker, id, but=holder.pid))
        if not before:
            look.skip("the sandbox's processes can't be seen from here")
            return
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    gone = await _until(lambda: not _with_words(marker, id, but=holder.pid))
    if not gone:
        left = _with_words(marker, id, but=holder.pid)
        look.fail(f"{len(left)} processes of a sandbox outlive a kill -9", evidence=f"{id}: {left}")
    look.passed(f"kill -9 with a sandbox running: its {len(before)} processes went with it")


async def _until(condition: Callable[[], Any]) -> Any:
    loop = asyncio.get_running_loop()
    end = loop.time() + _WAIT
    while not (found := condition()) and loop.time() < end:  # noqa: ASYNC110 - others' processes
        await asyncio.sleep(0.05)
    return found


def _with_words(*words: str, but: int) -> list[int]:
    """Processes whose command line has one of the words."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            said = (entry / "cmdline").read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if any(word in said for word in words) and int(entry.name) not in (but, os.getpid()):
            found.append(int(entry.name))
    return found


_MEMORY = "x = [bytearray(1 << 20) for _ in range(512)]; print('held')"
_FORKS = """
import os, time
made = 0
try:
    for _ in range(400):
        if os.fork() == 0:
            time.sleep(30); os._exit(0)
        made += 1
except OSError:
    pass
print(made, flush=True)
os._exit(0)
"""
_DISK = "open('big', 'wb').write(bytes(64 << 20)); print('written')"
_OUTPUT = "import sys; sys.stdout.write('x' * (8 << 20)); print('printed')"


async def limits_bite(look: Look, stage: Stage) -> None:
    _fit_the_machine(look, stage)
    async with await _made(memory="128mb", disk="32mb", pids=48) as sandbox:
        done = await sandbox.run("python3", "-c", _DISK)
        if done.ok:
            look.fail("64 MB were written to a disk of 32", evidence=str(done))
        done = await sandbox.run("python3", "-c", _OUTPUT, max_output=1 << 20)
        if done.ended is not Ended.OUTPUT_LIMIT and len(done.stdout_bytes) > 2 << 20:
            look.fail("a program printed eight times its limit of output", evidence=str(done))
        done = await sandbox.run("python3", "-c", _FORKS, timeout="20s")
        if done.ok and int(done.stdout.split()[0]) >= 400:
            look.fail("400 processes were made where 48 are allowed", evidence=str(done))
    async with await _made(memory="128mb") as sandbox:
        done = await sandbox.run("python3", "-c", _MEMORY)
        if done.ok:
            look.fail("512 MB were held where 128 are allowed", evidence=str(done))
    look.passed("memory, processes, disk and output: each limit held")


def _fit_the_machine(look: Look, stage: Stage) -> None:
    """A limit above what the machine has is none."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for function, call in creates(stage.sources):
        asked = keyword(call, "memory")
        value = asked.value if isinstance(asked, ast.Constant) else None
        wanted = size(value) if isinstance(value, str | int) else Limits().memory
        if wanted > whole:
            look.fail(
                f"{function.name} allows {wanted >> 20:,} MB of memory, and the machine has "
                f"{whole >> 20:,}",
                (function.source, call),
            )


_REACH = """
import socket, sys
for host in sys.argv[2:]:
    try:
        socket.create_connection((host, int(sys.argv[1])), 3).sendall(b"canary")
        print("reached", host)
    except OSError as error:
        pass
print("end")
"""


async def way_out(look: Look, stage: Stage) -> None:
    """A canary listens on this machine; nothing in a sandbox may reach it."""
    heard: list[Any] = []
    server = await asyncio.start_server(lambda reader, writer: _hear(heard, writer), "0.0.0.0", 0)  # noqa: S104 - to be reached by whoever can
    port = server.sockets[0].getsockname()[1]
    try:
        async with await _made() as sandbox:
            done = await sandbox.run("python3", "-c", _REACH, str(port), *_own_addresses())
    finally:
        server.close()
        await server.wait_closed()
    if heard or "reached" in done.stdout:
        look.fail(
            "a sandbox without a network reached a port of this machine", evidence=done.stdout
        )
    elif "end" not in done.stdout:
        look.skip(f"the program inside did not end: {done}")
    look.passed("a canary on this machine's addresses was not reached from a sandbox")


def _hear(heard: list[Any], writer: asyncio.StreamWriter) -> None:
    heard.append(writer.get_extra_info("peername"))
    writer.close()


def _own_addresses() -> list[str]:
    found = {"127.0.0.1"}
    try:
        found |= {
            str(each[4][0])
            for each in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
        }
    except OSError:
        pass  # a machine that does not know its own name
    return sorted(found)


_SEEK = """
import os, sys
needle = sys.stdin.read().strip().encode()
found = []
if any(needle in value.encode() for value in os.environ.values()): found.append("environment")
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("cmdline", "environ"):
        try:
            if needle in open(f"/proc/{pid}/{name}", "rb").read(): found.append(f"/proc {name}")
        except OSError: pass
for top in ("/workspace", "/home", "/root", "/tmp", "/etc", "/var", "/srv", "/opt"):
    for folder, _, names in os.walk(top):
        for name in names:
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    if needle in file.read(1 << 20): found.append(os.path.join(folder, name))
            except OSError: pass
print("found", sorted(set(found)))
"""


async def no_secret_inside(look: Look, stage: Stage) -> None:
    """A canary in our environment, in a file beside the project, and in an argument of ours."""
    canary = f"canary{secrets.token_hex(12)}"
    file = Path(os.environ["HOLDFAST_DRILL_FOLDER"]) / "secret.txt"
    file.write_text(canary)
    os.environ["DOCTOR_CANARY"] = canary
    waiting = [sys.executable, "-c", "input()", canary]
    argument = subprocess.Popen(waiting, stdin=subprocess.PIPE)  # noqa: ASYNC220 - it only begins
    try:
        async with await _made() as sandbox:
            done = await sandbox.run("python3", "-c", _SEEK, stdin=canary, timeout="1m")
    finally:
        argument.kill()
        argument.communicate()
        del os.environ["DOCTOR_CANARY"]
        file.unlink()
    if not done.stdout.startswith("found"):
        look.skip(f"the search inside did not end: {done} {done.stderr[-200:]}")
    elif done.stdout.strip() != "found []":
        look.fail("a secret of ours can be read in a sandbox", evidence=done.stdout.strip())
    look.passed("a secret in our environment, files and arguments: not to be found inside")


async def same_for_all(look: Look, stage: Stage) -> None:
    """Many at once get the boundary that one gets."""
    wanted = load().min_isolation
    made = await asyncio.gather(
        *(_made(memory="64mb") for _ in range(AT_ONCE)), return_exceptions=True
    )
    boxes = [each for each in made if isinstance(each, Sandbox)]
    failed = [each for each in made if isinstance(each, BaseException)]
    backends = {box.record.backend for box in boxes}
    await asyncio.gather(*(box.stop() for box in boxes))
    if failed and isinstance(failed[0], SandboxUnavailable):
        raise failed[0]
    if failed:
        look.fail(f"{len(failed)} of {AT_ONCE} sandboxes at once were not made: {failed[0]}")
    if len(backends) > 1:
        look.fail(f"{AT_ONCE} sandboxes at once came from {', '.join(sorted(backends))}")
    for backend in backends:
        if wanted and Isolation[backend.upper()] < Isolation[wanted.upper()]:
            look.fail(f"{backend} is less than {wanted}")
    look.passed(f"{AT_ONCE} sandboxes at once, all by {', '.join(backends)}")


SANDBOX_DRILLS: dict[str, Drill] = {
    "HF12": _in_sandboxes(no_orphans),
    "HF13": _in_sandboxes(limits_bite),
    "HF14": _in_sandboxes(way_out),
    "HF15": _in_sandboxes(no_secret_inside),
    "HF16": _in_sandboxes(same_for_all),
}
