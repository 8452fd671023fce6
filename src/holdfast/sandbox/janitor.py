"""The janitor: outlives its host process by as long as it takes to clean up after it.

Started before the first backend makes anything that would be left, with an empty environment and
nothing open but a pipe from the host; runs without the package.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from holdfast.sandbox import cleanup

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


def command(python: str, library: str, module: str, call: str, *arguments: str) -> list[str]:
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


def start() -> None:
    """Entry point: the configuration is the last argument, as one JSON object: whoever started us
    may be gone before it could tell us more."""
    config = json.loads(sys.argv[-1])
    ignore_the_terminal()
    wait_for_end(int(config["host_pid"]), int(config["alive_fd"]))
    cleanup.clean(str(config["folder"]), wait=5.0)


class Janitor:
    """The host's end: closing it, or ending in any other way, has the folder cleaned up."""

    def __init__(self, folder: Path) -> None:
        read_end, self._alive = os.pipe()
        python = getattr(sys, "_base_executable", sys.executable)
        config = {"host_pid": os.getpid(), "alive_fd": read_end, "folder": str(folder.absolute())}
        library = str(Path(__file__).parent)
        words = command(python, library, __name__, "start", json.dumps(config))
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
