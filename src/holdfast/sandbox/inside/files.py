"""File requests, done inside the sandbox and with its rights: the host never follows its paths.

Only regular files are read and written, without waiting on pipes or devices; sizes are
limited. Every failure is told as an errno and a path.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator
from typing import Any

CHUNK = 512 * 1024


def write(path: str, data: bytes, *, append: bool, mode: int | None) -> None:
    """Write a file, making its folders; a link at `path` is replaced, not followed."""
    parent = os.path.dirname(path)
    if parent:
        os.makedirs(parent, exist_ok=True)
    if append and mode is not None and not mode & 0o200 and not os.path.islink(path):
        os.chmod(path, mode | 0o200)  # its first piece made it read-only
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    flags |= os.O_APPEND if append else os.O_TRUNC
    try:
        fd = os.open(path, flags, 0o644 if mode is None else mode)
    except OSError as error:
        if error.errno != errno.ELOOP or append:
            raise
        os.unlink(path)
        fd = os.open(path, flags | os.O_EXCL, 0o644 if mode is None else mode)
    with open(fd, "wb") as file:
        _must_be_regular(fd, path)
        file.write(data)
        if mode is not None:
            os.fchmod(fd, mode)


def read(path: str, *, limit: int) -> Iterator[bytes]:
    """The file's content in pieces; a file over `limit` bytes is refused before any is read."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(fd, "rb", buffering=0) as file:
        _must_be_regular(fd, path)
        if os.fstat(fd).st_size > limit:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        left = limit
        while data := file.read(CHUNK):
            left -= len(data)
            if left < 0:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
            yield data


def read_at(path: str, offset: int, size: int) -> tuple[bytes, str]:
    """A piece of a file, and what tells this file from another of the same name."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        _must_be_regular(fd, path)
        info = os.fstat(fd)
        return os.pread(fd, min(size, CHUNK), offset), f"{info.st_dev}:{info.st_ino}"
    finally:
        os.close(fd)


def _must_be_regular(fd: int, path: str) -> None:
    mode = os.fstat(fd).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file", path)


def listing(path: str, *, recursive: bool, limit: int) -> Iterator[bytes]:
    """The entries below `path` as JSON lines, links not followed, at most `limit` of them."""
    lines: list[bytes] = []
    size = 0
    for count, (entry, info) in enumerate(_walk(path, "", recursive)):
        if count >= limit:
            raise OSError(errno.E2BIG, f"more than {limit} entries", path)
        line = json.dumps(_record(entry, info)).encode()
        lines.append(line)
        size += len(line)
        if size > CHUNK:
            yield b"\n".join(lines) + b"\n"
            lines, size = [], 0
    if lines:
        yield b"\n".join(lines)


def describe(path: str) -> dict[str, Any]:
    """One entry, a link not followed."""
    return _record(path, os.lstat(path))


def _record(path: str, info: os.stat_result) -> dict[str, Any]:
    return {
        "path": path,
        "type": _kind(info.st_mode),
        "size": info.st_size,
        "mode": stat.S_IMODE(info.st_mode),
        "modified": info.st_mtime,
    }


def rename(path: str, target: str) -> None:
    """Move an entry, making the folders of where it goes; a file that is there is replaced."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.rename(path, target)


def _walk(root: str, below: str, recursive: bool) -> Iterator[tuple[str, os.stat_result]]:
    waiting = [below]
    while waiting:
        folder = waiting.pop()
        with os.scandir(os.path.join(root, folder) if folder else root) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                relative = f"{folder}/{entry.name}" if folder else entry.name
                yield relative, entry.stat(follow_symlinks=False)
                if recursive and entry.is_dir(follow_symlinks=False):
                    waiting.append(relative)


def _kind(mode: int) -> str:
    for test, name in ((stat.S_ISREG, "file"), (stat.S_ISDIR, "dir"), (stat.S_ISLNK, "link")):
        if test(mode):
            return name
    return "other"


def remove(path: str) -> None:
    """Remove a file, a link, or a folder with all it holds."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def unpack(root: str, entries: list[dict[str, Any]], payload: bytes) -> None:
    """Write a batch of entries below `root`; names that would leave it are refused."""
    offset = 0
    for entry in entries:
        name = str(entry["path"])
        if name.startswith("/") or ".." in name.split("/") or "\0" in name:
            raise OSError(errno.EINVAL, "a path that leaves its folder", name)
        path = os.path.join(root, name)
        _no_links_on_the_way(root, name)
        kind = entry["type"]
        if kind == "dir":
            os.makedirs(path, exist_ok=True)
        elif kind == "link":
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            os.symlink(str(entry["target"]), path)
        else:
            size = int(entry["size"])
            data = payload[offset : offset + size]
            offset += size
            write(path, data, append=bool(entry.get("append")), mode=int(entry["mode"]))


def _no_links_on_the_way(root: str, name: str) -> None:
    path = root
    for part in name.split("/")[:-1]:
        path = f"{path}/{part}"
        if os.path.islink(path):
            raise OSError(errno.ELOOP, "a path that goes through a link", name)
