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
import resource
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
READY, READY_MAPPED = b"ready", b"ready, with users of their own"
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
    mapped = _Mapped()
    server.sendall(READY_MAPPED if mapped.works() else READY)
    while True:
        message, fds, _, _ = socket.recv_fds(server, _LARGEST_REQUEST, _MOST_FDS)
        if not message:
            os._exit(0)
        data: dict[str, Any] = json.loads(message)
        users = mapped.namespace(data["mapped_from"], data["uid"])
        if os.fork() == 0:
            server.detach()
            os.close(socket_fd)
            mapped.close_all_but(users)
            request, strict = _request(data, fds, users)
            enter.enter(request, programs[strict], pythons)
        for fd in fds:
            os.close(fd)


class _Mapped:
    """User namespaces that make one user's files another's; one a user, kept for the next."""

    def __init__(self) -> None:
        self._namespaces: dict[int, int] = {}
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def works(self) -> bool:
        """Whether this kernel can map the owners of what sandboxes start from."""
        if os.geteuid() != 0:
            return False
        heard, tell = os.pipe()
        if os.fork() == 0:
            try:
                linux.unshare(linux.CLONE_NEWNS)
                linux.bind_mapped("/skeleton", "/skeleton", linux.user_namespace(1, 2))
                os.write(tell, b".")
            finally:
                os._exit(0)
        os.close(tell)
        with open(heard, "rb") as answer:
            return answer.read() == b"."

    def namespace(self, inside: int | None, outside: int) -> int:
        if inside is None:
            return -1
        if outside not in self._namespaces:
            self._namespaces[outside] = linux.user_namespace(inside, outside)
        return self._namespaces[outside]

    def close_all_but(self, users: int) -> None:
        """In a child: it has no use for the others."""
        for fd in self._namespaces.values():
            if fd != users:
                os.close(fd)


_STRICTER = frozenset({"memfd_create", "sched_setaffinity", "sched_setattr", "shmget", "msgget"})
"""Refused where no cgroup counts memory and shares the processors."""


def _request(data: dict[str, Any], fds: list[int], users: int) -> tuple[enter.Request, bool]:
    strict = bool(data.pop("strict"))
    cgroups = int(data.pop("cgroups"))
    assert len(fds) == 2 + cgroups
    return enter.Request(**data, channel=fds[0], setup=fds[1], cgroups=fds[2:], users=users), strict


def start() -> None:
    """Entry point: arguments are the socket's descriptor and the interpreter's names."""
    try:
        main(int(sys.argv[1]), frozenset(sys.argv[2:]))
    except zygote.BecomeScript as become:
        script = become.script
    else:
        return
    zygote.run(script)
