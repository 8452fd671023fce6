"""The sandbox's own folders as a stream, for snapshots where the host can't see them.

Nested frames: an entry each, a file's data after it in pieces, without its holes. Everything is
read with the sandbox's own rights; what its owner has locked is unlocked for the moment.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from holdfast.sandbox.inside import frames

ROOTS = ("workspace", "home/user", "tmp")
"""What a sandbox can write to, below /."""
LAYERED = "layered"
LAYER, UPPER = "/layer", "/upper"
"""Where a snapshot and the space for changes to it are mounted, until the agent has laid one over
the other."""
DEEPEST = 128
_PIECE = 512 * 1024
_ZEROS = bytes(_PIECE)
"""Left out too: where holes can't be asked for, they are read as this."""


def pack() -> Iterator[bytes]:
    """Everything below the roots; the processes must be paused."""
    seen: dict[int, str] = {}
    for root in ROOTS:
        yield from _folder(f"/{root}", root, seen, 0)


def _folder(path: str, name: str, seen: dict[int, str], depth: int) -> Iterator[bytes]:
    if depth > DEEPEST:
        why = f"folders more than {DEEPEST} deep can't be kept in a snapshot"
        raise OSError(errno.ENAMETOOLONG, why)
    info = os.lstat(path)
    yield _entry("dir", name, info)
    with _unlocked(path, info, 0o700):
        for child in sorted(os.listdir(path)):
            inner, label = f"{path}/{child}", f"{name}/{child}"
            found = os.lstat(inner)
            if stat.S_ISDIR(found.st_mode):
                yield from _folder(inner, label, seen, depth + 1)
            elif stat.S_ISLNK(found.st_mode):
                yield _entry("link", label, found, to=os.readlink(inner))
            elif stat.S_ISREG(found.st_mode):
                yield from _file(inner, label, found, seen)


def _file(path: str, name: str, info: os.stat_result, seen: dict[int, str]) -> Iterator[bytes]:
    if info.st_nlink > 1:
        first = seen.setdefault(info.st_ino, name)
        if first != name:
            yield _entry("same", name, info, first=first)
            return
    yield _entry("file", name, info, size=info.st_size)
    with _unlocked(path, info, 0o600):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            for start, end in _data(fd, info.st_size):
                place = start
                while place < end:
                    piece = os.pread(fd, min(_PIECE, end - place), place)
                    if not piece:
                        break
                    if piece != _ZEROS[: len(piece)]:
                        yield frames.encode({"t": "data", "at": place}, piece)
                    place += len(piece)
        finally:
            os.close(fd)


def _entry(kind: str, name: str, info: os.stat_result, **more: object) -> bytes:
    mode = stat.S_IMODE(info.st_mode)
    return frames.encode(
        {"t": kind, "name": name, "mode": mode, "modified": info.st_mtime_ns, **more}
    )


@contextmanager
def _unlocked(path: str, info: os.stat_result, needed: int) -> Generator[None]:
    mode = stat.S_IMODE(info.st_mode)
    if mode & needed == needed:
        yield
        return
    os.chmod(path, mode | needed)
    try:
        yield
    finally:
        os.chmod(path, mode)


def _data(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """The parts of a file that hold data."""
    place = 0
    while place < size:
        try:
            start = os.lseek(fd, place, os.SEEK_DATA)
            place = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            if error.errno != errno.EINVAL:
                raise
            yield place, size  # a file system that knows of no holes
            return
        yield start, place
