"""How a process comes to be: what is asked for, and programs by a spawn (scripts: `prefork`)."""

from __future__ import annotations

import errno
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.sandbox.inside import zygote

Streams = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Order(zygote.Program):
    """A program to start, and as what."""

    cwd: str
    user: int | None
    """Who it becomes, where that is not who we are already."""

    @classmethod
    def of(cls, header: dict[str, Any], pythons: frozenset[str], user: int | None) -> Order:
        """What a request asks for. Raises OSError where there is no such program or folder."""
        argv = [str(word) for word in header["argv"]]
        env = {str(k): str(v) for k, v in header["env"].items()}
        cwd = str(header["cwd"])
        _look_into(cwd)
        program = _find(argv[0], cwd, env.get("PATH", ""))
        kind = zygote.plan(program, argv, env, cwd, pythons)
        return cls(program, argv, env, kind, cwd, user)


def become(order: Order, streams: Streams) -> None:
    """In the child: be the command's process, but for its program. Raises OSError, which must
    not lead the child back to what the agent does."""
    if order.user is not None:
        os.setresuid(order.user, order.user, order.user)
    os.setsid()
    for target, fd in enumerate(streams):
        os.dup2(fd, target)
    os.chdir(order.cwd)


def start(order: Order, streams: Streams) -> int:
    """Start a program; gives its pid. It borrows our memory until it executes: no copy is made."""
    started = subprocess.Popen(
        order.argv,
        executable=order.program,
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        cwd=order.cwd,
        env=order.env,
        start_new_session=True,
        user=order.user,
    )
    started.returncode = 0  # reaped with all other children, by the agent
    return started.pid


def _look_into(folder: str) -> None:
    """Raise OSError where a process can't have this as its working directory."""
    try:
        os.stat(f"{folder}/.")
    except OSError as error:
        raise OSError(error.errno, error.strerror, folder) from None


def _find(name: str, cwd: str, path: str) -> str:
    """The program's file, as a shell would find it."""
    if "/" in name:
        return name if name.startswith("/") else str(Path(cwd, name))
    for folder in path.split(":"):
        candidate = f"{folder or '.'}/{name}"
        if os.access(candidate, os.X_OK) and not Path(candidate).is_dir():
            return candidate
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
