"""Snapshots of sandboxes whose files the host can't see: told by the agent, written down here.

What is told is hostile until proven otherwise. Names are followed only through folders made by
this very telling, in a folder of our own; amounts are limited by what the sandbox may hold.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.errors import SandboxError
from holdfast.sandbox.inside import frames
from holdfast.sandbox.inside.packing import DEEPEST, ROOTS


class Unpacker:
    """Writes a packed sandbox below `layer`, owned by `owner`."""

    def __init__(self, layer: Path, *, owner: int, most_bytes: int, most_entries: int) -> None:
        self._layer, self._owner = layer, owner
        self._left, self._entries = most_bytes, most_entries
        self._decoder = frames.Decoder()
        self._folders: dict[str, tuple[int, int]] = {}
        self._files: set[str] = set()
        self._file: int | None = None
        self._file_size = 0
        self._then: Callable[[], None] = _nothing
        self.size = 0
        for root in ROOTS:
            (layer / root).parent.mkdir(parents=True, exist_ok=True)

    def take(self, piece: bytes) -> None:
        """The next piece of the stream."""
        try:
            for header, payload in self._decoder.feed(piece):
                self._apply(header, payload)
        except (frames.BadFrame, KeyError, TypeError, ValueError, OSError) as error:
            raise SandboxError(f"the sandbox's files can't be kept: {error}") from error

    def finish(self) -> int:
        """The bytes that were written; folders get their modes and times only now."""
        self._close_file()
        for name, (mode, modified) in reversed(self._folders.items()):
            self._settle(str(self._layer / name), mode, modified)
        return self.size

    def close(self) -> None:
        """Let go of the file under way."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _apply(self, header: dict[str, Any], payload: bytes) -> None:
        kind = str(header["t"])
        if kind == "data":
            self._data(int(header["at"]), payload)
            return
        self._close_file()
        self._entries -= 1
        if self._entries < 0:
            raise SandboxError("the sandbox tells of more files than it may have")
        name, mode, modified = str(header["name"]), int(header["mode"]), int(header["modified"])
        path = self._place(name)
        if kind == "dir":
            os.mkdir(path, 0o700)
            self._folders[name] = (mode, modified)
        elif kind == "link":
            os.symlink(str(header["to"]), path)
            os.chown(path, self._owner, self._owner, follow_symlinks=False)
        elif kind == "same":
            first = str(header["first"])
            if first not in self._files:
                raise ValueError("a link to a file that was not told")
            os.link(self._layer / first, path, follow_symlinks=False)
        elif kind == "file":
            self._begin_file(path, int(header["size"]))
            self._files.add(name)
            self._then = lambda: self._settle(path, mode, modified)
        else:
            raise ValueError(f"an entry of kind {kind[:20]!r}")

    def _place(self, name: str) -> str:
        """Where an entry goes: a root, or below a folder that was told before."""
        parent, _, last = name.rpartition("/")
        if name in ROOTS:
            return str(self._layer / name)
        if parent not in self._folders or last in ("", ".", "..") or "\0" in last:
            raise ValueError("a name that leads elsewhere")
        if name.count("/") > DEEPEST + 2:
            raise ValueError("folders that are too deep")
        return str(self._layer / parent / last)

    def _begin_file(self, path: str, size: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._file = os.open(path, flags, 0o600)
        self._file_size = size
        os.ftruncate(self._file, size)

    def _data(self, place: int, payload: bytes) -> None:
        if self._file is None or place < 0 or place + len(payload) > self._file_size:
            raise ValueError("data of no file")
        self._left -= len(payload)
        if self._left < 0:
            raise SandboxError("the sandbox tells of more data than it may have")
        self.size += len(payload)
        view = memoryview(payload)
        while view:
            written = os.pwrite(self._file, view, place)
            view, place = view[written:], place + written

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self._then()

    def _settle(self, path: str, mode: int, modified: int) -> None:
        os.chown(path, self._owner, self._owner, follow_symlinks=False)
        os.chmod(path, mode & 0o1777)
        os.utime(path, ns=(modified, modified), follow_symlinks=False)


def _nothing() -> None:
    """What is left to do for a file that is none."""
