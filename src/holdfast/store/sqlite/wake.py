"""Wake-ups between the processes on one machine that share a store.

Each process binds a datagram socket in a folder that belongs to the store; whoever commits
something of interest sends a byte to the others. That replaces polling, and tells more: a
socket file that nobody has bound any more means that its process is gone, so that its runs can
be taken over at once instead of when their lease runs out. Losing a datagram costs latency,
never correctness: everyone also looks by themselves now and then.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

SUFFIX = ".sock"
REFRESH_SECONDS = 1.0
"""How long a listing of the other sockets is believed."""
QUIET_SECONDS = 0.005
"""At most one datagram to each in this time; a busy writer must not pay per commit."""


def folder_for(store: Path) -> Path:
    """Where the sockets of a store's processes are: a short path, for the kernel's 108 bytes."""
    digest = hashlib.blake2b(str(store.resolve()).encode(), digest_size=8).hexdigest()
    return Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}" / digest


class Wakes(Protocol):
    """How a process tells the others that there is news, and which of them are gone."""

    def tell(self) -> None:
        """Wake the other processes, soon."""
        ...

    def tell_from_thread(self) -> None:
        """Wake them at once, from another thread."""
        ...

    def dead(self) -> list[str]:
        """Names of processes that are known to be gone."""
        ...

    def forget(self, names: Iterable[str]) -> None:
        """Their runs have been freed."""
        ...

    def close(self) -> None: ...


class Wake:
    """This process's socket, and its knowledge of the others."""

    def __init__(self, store: Path, name: str, on_wake: Callable[[], None]) -> None:
        self._folder = folder_for(store)
        self._path = self._folder / f"{name}{SUFFIX}"
        self._on_wake = on_wake
        self._others: list[Path] = []
        self._listed_at = float("-inf")
        self._pending: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._socket = self._bind()

    def _bind(self) -> socket.socket:
        root = self._folder.parent
        root.mkdir(mode=0o700, exist_ok=True)
        if root.stat().st_uid != os.getuid():
            raise PermissionError(f"{root} belongs to another user")
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bound.setblocking(False)
        while True:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            try:
                bound.bind(str(self._path))
                break
            except FileNotFoundError:
                continue  # the last process to leave has just removed the folder
        self._loop.add_reader(bound.fileno(), self._receive)
        return bound

    def _receive(self) -> None:
        try:
            while self._socket.recv(64):
                pass
        except BlockingIOError:
            pass
        self._on_wake()

    def tell(self) -> None:
        """Wake the other processes, soon."""
        if self._pending is None:
            self._pending = self._loop.call_later(QUIET_SECONDS, self._send)

    def tell_from_thread(self) -> None:
        """Wake them at once, from another thread: the loop may be held up."""
        for path in self._list_others():
            self._knock(path)

    def _list_others(self) -> list[Path]:
        return [path for path in self._folder.glob(f"*{SUFFIX}") if path != self._path]

    def _send(self) -> None:
        self._pending = None
        now = self._loop.time()
        if now - self._listed_at > REFRESH_SECONDS:
            self._others = self._list_others()
            self._listed_at = now
        for path in self._others:
            self._knock(path)

    def _knock(self, path: Path) -> None:
        try:
            self._socket.sendto(b"!", str(path))
        except OSError:
            return  # its buffer is full, so it will look anyway; or it is gone

    def dead(self) -> list[str]:
        """Names of the processes that left a socket behind but are gone."""
        others = self._list_others()
        return [path.name.removesuffix(SUFFIX) for path in others if _is_unbound(path)]

    def forget(self, names: Iterable[str]) -> None:
        """Remove what dead processes left; their runs have been freed."""
        for name in names:
            path = self._folder / f"{name}{SUFFIX}"
            if _is_unbound(path):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
            self._send()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._path.unlink(missing_ok=True)
        try:
            self._folder.rmdir()
        except OSError:
            return  # others are still there


def _is_unbound(path: Path) -> bool:
    """Whether a socket's process is gone for certain. (Connecting sends nothing.)"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def alive(store: Path) -> list[str]:
    """Names of the processes that have the store open now, in the order they came."""
    sockets = sorted(folder_for(store).glob(f"*{SUFFIX}"))
    return [path.name.removesuffix(SUFFIX) for path in sockets if not _is_unbound(path)]
