"""Watches: what changes in a folder, told to the host as it happens.

By inotify. A batch is sent when the host has taken the one before; meanwhile changes are put
together, and past a bound the host is told that some were lost instead. A new folder below is
watched too, and what it held by then is told as created.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.sandbox.inside.agent import Agent

_MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO = 0x2, 0x4, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_OVERFLOW, _IGNORED, _ONLYDIR, _ISDIR = 0x4000, 0x8000, 0x01000000, 0x40000000
_DONT_FOLLOW = 0x02000000
_SELF = _DELETE_SELF | _MOVE_SELF
_WANTED = _MODIFY | _ATTRIB | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _SELF | _ONLYDIR
_EVENT = struct.Struct("iIII")
_MOST_FOLDERS = 4096
_MOST_PENDING = 4096
_BATCH = 128 * 1024
MOST = 16
"""Watches of one sandbox at a time."""

_libc = ctypes.CDLL(None, use_errno=True)

Change = tuple[str, str, str | None]
"""What happened, to which path, and where it went."""


class Watch:
    """One folder being watched."""

    def __init__(
        self, agent: Agent, key: int, path: str, *, recursive: bool, closed: Callable[[], None]
    ) -> None:
        self._agent, self._key, self._closed = agent, key, closed
        self._root, self._recursive = path, recursive
        self._folders: dict[int, str] = {}
        self._pending: dict[Change, None] = {}
        self._lost = False
        self._told = False
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise _failure(path)
        try:
            self._add("")
            for below in self._folders_below("") if recursive else ():
                self._add(below)
        except OSError:
            os.close(self._fd)
            raise
        agent.watch(self._fd, read=self._readable)

    def _add(self, below: str) -> None:
        if len(self._folders) >= _MOST_FOLDERS:
            raise OSError(errno.ENOSPC, f"more than {_MOST_FOLDERS} folders", self._root)
        path = os.path.join(self._root, below) if below else self._root
        flags = _WANTED | (_DONT_FOLLOW if below else 0)
        number = _libc.inotify_add_watch(self._fd, os.fsencode(path), ctypes.c_uint32(flags))
        if number < 0:
            raise _failure(path)
        self._folders[number] = below

    def _folders_below(self, below: str) -> list[str]:
        found: list[str] = []
        waiting = [below]
        while waiting:
            folder = waiting.pop()
            for name, is_folder in _entries(os.path.join(self._root, folder)):
                if is_folder:
                    path = f"{folder}/{name}" if folder else name
                    found.append(path)
                    waiting.append(path)
        return found

    def _readable(self, _: int) -> None:
        try:
            data = os.read(self._fd, 64 * 1024)
        except BlockingIOError:
            return
        at = 0
        moved: dict[int, tuple[str, bool]] = {}
        while at < len(data):
            number, mask, cookie, size = _EVENT.unpack_from(data, at)
            name = os.fsdecode(data[at + _EVENT.size :][:size].rstrip(b"\0"))
            at += _EVENT.size + size
            self._happened(number, mask, cookie, name, moved)
        for path, _is_folder in moved.values():
            self._note("removed", path)  # it left what is watched
        self._send()

    def _happened(
        self, number: int, mask: int, cookie: int, name: str, moved: dict[int, tuple[str, bool]]
    ) -> None:
        if mask & _OVERFLOW:
            self._lost = True
            return
        folder = self._folders.get(number)
        if folder is None:
            return
        if mask & (_IGNORED | _SELF):
            self._folder_went(number, mask, folder)
            return
        path = f"{folder}/{name}" if folder else name
        is_folder = bool(mask & _ISDIR)
        if mask & _MOVED_FROM:
            moved[cookie] = (path, is_folder)
        elif mask & _MOVED_TO and cookie in moved:
            before, _ = moved.pop(cookie)
            self._note("renamed", before, path)
            if is_folder:
                self._follow(before, path)
        elif mask & (_CREATE | _MOVED_TO):
            self._note("created", path)
            if is_folder and self._recursive:
                self._watch_new(path)
        elif mask & _DELETE:
            self._note("removed", path)
        elif mask & _MODIFY:
            self._note("modified", path)
        elif mask & _ATTRIB:
            self._note("attributes", path)

    def _folder_went(self, number: int, mask: int, folder: str) -> None:
        if mask & _MOVE_SELF and folder:
            return  # told by the folder above it
        if mask & _IGNORED:
            del self._folders[number]
        if not folder and not mask & _IGNORED:
            self._note("removed", ".")

    def _follow(self, before: str, path: str) -> None:
        """A folder has another name: so have those below."""
        for number, folder in self._folders.items():
            if folder == before or folder.startswith(f"{before}/"):
                self._folders[number] = path + folder[len(before) :]

    def _watch_new(self, path: str) -> None:
        """A folder that came to be: what it holds already may have come before we looked."""
        try:
            self._add(path)
            entries = _entries(os.path.join(self._root, path))
        except FileNotFoundError:
            return  # and is gone again
        except OSError:
            self._lost = True  # too many: what happens there is not seen
            return
        for name, is_folder in entries:
            self._note("created", f"{path}/{name}")
            if is_folder:
                self._watch_new(f"{path}/{name}")

    def _note(self, what: str, path: str, to: str | None = None) -> None:
        if len(self._pending) >= _MOST_PENDING:
            self._pending.clear()
            self._lost = True
        change = (what, path, to)
        if what == "modified" and change in self._pending:
            return  # the host has not heard of the first yet
        self._pending.pop(change, None)
        self._pending[change] = None

    def taken(self) -> None:
        """The host has taken what it was told."""
        self._told = False
        self._send()

    def _send(self) -> None:
        if self._told or not (self._pending or self._lost):
            return
        lines: list[bytes] = []
        size = 0
        for change in list(self._pending):
            line = json.dumps(change).encode("utf-8", "surrogateescape")
            size += len(line) + 1
            if lines and size > _BATCH:
                break
            lines.append(line)
            del self._pending[change]
        header = {"id": self._key, "ev": "changes", "lost": self._lost}
        self._lost = False
        self._told = True
        self._agent.send(header, b"\n".join(lines))

    def close(self) -> None:
        """Watch no more."""
        if self._fd >= 0:
            self._agent.forget(self._fd)
            os.close(self._fd)
            self._fd = -1
            self._closed()


def _entries(folder: str) -> list[tuple[str, bool]]:
    try:
        with os.scandir(folder) as entries:
            return [(e.name, e.is_dir(follow_symlinks=False)) for e in entries]
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        return []


def _failure(path: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), path)
