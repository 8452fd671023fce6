"""What a sandbox leaves outside itself, and how it is removed: used by stop, launcher and sweep.

Each host process has a folder with a lease (a lock the kernel drops when the process ends), a
file per sandbox, and cgroups named after it. `sweep` removes those of processes that are gone:
killed, or of before a reboot. Everything here can be repeated, and runs without the package.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def sweep(state: str) -> list[str]:
    """Clean up after every host process that no longer holds its lease; returns their names."""
    hosts = Path(state, "hosts")
    swept: list[str] = []
    if not hosts.is_dir():
        return swept
    for folder in sorted(hosts.iterdir()):
        if not _abandoned(folder):
            continue
        clean(str(folder), wait=2.0)
        swept.append(folder.name)
    return swept


def _abandoned(folder: Path) -> bool:
    try:
        fd = os.open(folder / "lease", os.O_RDWR)
    except FileNotFoundError:
        # Without a lease it is either being made this moment or was left half removed.
        return time.time() - folder.stat().st_mtime > 60
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def clean(folder: str, *, wait: float) -> None:
    """Remove everything that belongs to the host process of this folder, then the folder."""
    root = Path(folder)
    for file in sorted(root.glob("sandboxes/*.json")):
        try:
            record: dict[str, Any] = json.loads(file.read_text())
        except (OSError, ValueError):
            record = {}  # killed while writing it: its cgroup is found below, by name
        for cgroup in record.get("cgroups", ()):
            thaw(cgroup)  # what is frozen does not die
        kill(record)
        for cgroup in record.get("cgroups", ()):
            remove_cgroup(cgroup, wait=wait)
    try:
        parents: list[str] = json.loads((root / "cgroups.json").read_text())
    except FileNotFoundError:
        parents = []  # none were made, or somebody else was here first
    for parent in parents:
        for cgroup in sorted(Path(parent).glob("sbx_*")):
            remove_cgroup(str(cgroup), wait=wait)
        remove_cgroup(parent, wait=wait)
    _remove(root)


def _remove(root: Path) -> None:
    """Remove the host process's folder, but never what is mounted in it."""
    if os.path.ismount(root / "view"):
        raise OSError(errno.EBUSY, "still mounted", str(root / "view"))
    shutil.rmtree(root, ignore_errors=True)


def kill(record: dict[str, Any]) -> None:
    """Kill a sandbox's first process, if it is still the one that was recorded."""
    pid, born = record.get("pid"), record.get("born")
    if not isinstance(pid, int) or start_time(pid) != born or born is None:
        return
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def start_time(pid: int) -> int | None:
    """When the process started, in clock ticks since boot: with its pid, its identity."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return int(fields[19])


def remove_cgroup(path: str, *, wait: float) -> bool:
    """Kill what is in the cgroup and remove it; False if it would not go within `wait` seconds."""
    deadline = time.monotonic() + wait
    pause = 0.0005
    while True:
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOTEMPTY):
                raise
        else:
            return True
        if time.monotonic() > deadline:
            return False
        _kill_all(path)
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def thaw(path: str) -> None:
    """Let the processes of a cgroup go on, if it can freeze any."""
    for file, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
        set_word(f"{path}/{file}", word)


def set_word(path: str, word: str) -> bool:
    """Write to a file of the kernel's; False if there is none, or none for us."""
    try:
        fd = os.open(path, os.O_WRONLY)
    except (FileNotFoundError, PermissionError):
        return False
    try:
        os.write(fd, word.encode())
    finally:
        os.close(fd)
    return True


def _kill_all(path: str) -> None:
    whole = Path(path, "cgroup.kill")
    try:
        if whole.exists():
            whole.write_text("1")
            return
        for pid in Path(path, "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return


# --- the janitor: outlives its host process by as long as it takes to clean up after it ---

BOOT = """
import sys, types
def holdfast_boot(library):
    del sys.path[0]
    for name, path in (("holdfast", None), ("holdfast.sandbox", library)):
        module = types.ModuleType(name)
        module.__path__ = [path] if path else []
        sys.modules[name] = module
"""
"""Makes `holdfast.sandbox` importable without running the package's own `__init__`."""


def bare_command(python: str, library: str, module: str, call: str, *arguments: str) -> list[str]:
    """The command line that calls a function of this package in a bare interpreter."""
    code = f"{BOOT}\nholdfast_boot({library!r})\nfrom {module} import {call}\n{call}()\n"
    return [python, "-c", code, *arguments]


def wait_for_end(host_pid: int, alive: int, *others: int) -> bool:
    """Wait until the host process, or one of the other descriptors, ends; whether it was the host.

    The pipe tells of an end; the process itself is watched too, since a forked child of it may
    hold the pipe open.
    """
    try:
        host = os.pidfd_open(host_pid)
    except ProcessLookupError:
        return True  # it did not live to see us start
    waiting = select.poll()
    for fd in (host, alive, *others):
        waiting.register(fd, select.POLLIN)
    gone = {fd for fd, _ in waiting.poll()}
    os.close(host)
    return host in gone or alive in gone


def ignore_the_terminal() -> None:
    """A session of our own, deaf to what ends the host's."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def start_janitor() -> None:
    """Entry point: the configuration is the last argument, as one JSON object: whoever started us
    may be gone before it could tell us more."""
    config = json.loads(sys.argv[-1])
    ignore_the_terminal()
    wait_for_end(int(config["host_pid"]), int(config["alive_fd"]))
    clean(str(config["folder"]), wait=5.0)


class Janitor:
    """The host's end: closing it, or ending in any other way, has the folder cleaned up.

    Started before the first backend makes anything that would be left, with an empty environment
    and nothing open but a pipe from the host.
    """

    def __init__(self, folder: Path) -> None:
        read_end, self._alive = os.pipe()
        python = getattr(sys, "_base_executable", sys.executable)
        config = {"host_pid": os.getpid(), "alive_fd": read_end, "folder": str(folder.absolute())}
        library = str(Path(__file__).parent)
        words = bare_command(python, library, __name__, start_janitor.__name__, json.dumps(config))
        self._process = subprocess.Popen(
            [words[0], "-I", "-S", *words[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(read_end,),
            env={},
            cwd="/",
        )
        os.close(read_end)

    def close(self) -> None:
        os.close(self._alive)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
