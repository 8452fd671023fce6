"""The fork server: one request on its socket, one sandbox. Runs inside the view.

A plain interpreter with an empty environment and the modules scripts use most already loaded,
so that what it forks starts at once and shares its memory. It knows nothing of the host but
what a request hands it, and ends when its socket does.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
from typing import Any

from holdfast.sandbox.inside import zygote
from holdfast.sandbox.namespace import enter, linux, seccomp

PRELOADED = (
    "argparse ast asyncio base64 collections concurrent.futures copy csv ctypes dataclasses "
    "datetime decimal difflib enum fractions functools hashlib heapq html http.client inspect io "
    "itertools json logging math operator os pathlib pprint queue random re secrets shutil socket "
    "sqlite3 statistics string struct subprocess sys tempfile textwrap threading time traceback "
    "types typing unittest unittest.mock urllib.request uuid warnings zlib pytest _pytest.assertion"
    ".rewrite _pytest.python _pytest.fixtures _pytest.terminal _pytest.capture _pytest.main"
).split()
_LARGEST_REQUEST = 1024 * 1024
_MOST_FDS = 253


def main(socket_fd: int, pythons: frozenset[str]) -> None:
    """Serve until the host goes; in a forked script, return once it has ended."""
    linux.become_subreaper()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps for us
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in PRELOADED:
        # What is not installed can't be preloaded: scripts that want it will say so.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    machine = os.uname().machine
    programs = {
        strict: seccomp.program(machine, without=_STRICTER if strict else frozenset())
        for strict in (False, True)
    }
    gc.collect()
    gc.freeze()
    server = socket.socket(fileno=socket_fd)
    server.sendall(b"ready")
    while True:
        message, fds, _, _ = socket.recv_fds(server, _LARGEST_REQUEST, _MOST_FDS)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            server.detach()
            os.close(socket_fd)
            data: dict[str, Any] = json.loads(message)
            request, strict = _request(data, fds)
            enter.enter(request, programs[strict], pythons)
        for fd in fds:
            os.close(fd)


_STRICTER = frozenset({"memfd_create", "sched_setaffinity", "sched_setattr", "shmget", "msgget"})
"""Refused where no cgroup counts memory and shares the processors."""


def _request(data: dict[str, Any], fds: list[int]) -> tuple[enter.Request, bool]:
    strict = bool(data.pop("strict"))
    cgroups = int(data.pop("cgroups"))
    assert len(fds) == 2 + cgroups
    return enter.Request(**data, channel=fds[0], setup=fds[1], cgroups=fds[2:]), strict


def start() -> None:
    """Entry point: arguments are the socket's descriptor and the interpreter's names."""
    try:
        main(int(sys.argv[1]), frozenset(sys.argv[2:]))
    except zygote.BecomeScript as become:
        script = become.script
    else:
        return
    zygote.run(script)
