"""The launcher: builds the view, starts the fork server in it, and cleans up after a killed host.

Started by the host process with an empty environment. It keeps nothing open but a pipe from
the host: when the host goes, however it goes, the launcher ends what is left of its sandboxes,
removes their cgroups and the host's folder, and ends too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from holdfast.sandbox import cleanup
from holdfast.sandbox.cleanup import bare_command, ignore_the_terminal, wait_for_end
from holdfast.sandbox.namespace import linux
from holdfast.sandbox.namespace.view import LOCALE, Runtimes, build, inside_python, python_paths


def start() -> None:
    """Entry point: the configuration is on standard input, as one JSON object."""
    config: dict[str, Any] = json.load(sys.stdin)
    alive, server = int(config["alive_fd"]), int(config["server_fd"])
    ignore_the_terminal()
    runtimes = Runtimes.from_json(config["runtimes"])
    view = str(config["view"])
    _own_mounts()
    uid = config["uid"]
    owner = (uid, uid) if uid is not None else (os.geteuid(), os.getegid())
    build(
        view,
        runtimes,
        library=str(config["library"]),
        snapshots=str(config["snapshots"]),
        owner=owner,
    )
    pid = os.fork()
    if pid == 0:
        _serve(view, runtimes, server, alive)
    os.close(server)
    fork_server = os.pidfd_open(pid)
    gone = wait_for_end(int(config["host_pid"]), alive, fork_server)
    signal.pidfd_send_signal(fork_server, signal.SIGKILL)
    os.waitpid(pid, 0)
    linux.umount(view)
    if gone:
        cleanup.clean(str(config["folder"]), wait=5.0)


def _own_mounts() -> None:
    """A mount namespace of our own; without root, inside a user namespace of our own."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        linux.unshare(linux.CLONE_NEWNS)
    else:
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            fd = os.open(f"/proc/self/{name}", os.O_WRONLY)
            os.write(fd, text.encode())
            os.close(fd)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)


def _serve(view: str, runtimes: Runtimes, server: int, alive: int) -> None:
    """In a child: move into the view and become the fork server."""
    linux.unshare(linux.CLONE_NEWNS)
    os.close(alive)
    os.chdir(view)
    linux.pivot_root(".", ".")
    linux.umount(".")
    os.chdir("/")
    os.set_inheritable(server, True)
    words = bare_command(
        inside_python(runtimes),
        "/lib-holdfast",
        "holdfast.sandbox.namespace.server",
        "start",
        str(server),
        *sorted(python_paths(runtimes)),
    )
    os.execve(words[0], words, LOCALE)  # noqa: S606 - our own interpreter
