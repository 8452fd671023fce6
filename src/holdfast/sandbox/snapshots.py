"""Snapshots: what a sandbox changed, kept as an overlay layer others can start from.

Taking one pauses the sandbox's processes, copies its writable layer to disk and lets them go on;
starting from one mounts it, whatever its size. The copy trusts nothing in the layer: links are
never followed, holes stay holes and hard links stay links, so it can't grow beyond the limits
the sandbox had.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.errors import NotFound, Refused, SandboxError
from holdfast.ids import new_id

_DEEPEST = 128
_OPAQUE = "user.overlay.opaque"
_COPY = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A kept state of a sandbox's files. `Sandbox.create(source=snapshot)` starts from it."""

    id: str
    created_at: datetime
    parents: tuple[str, ...]
    """The snapshots below it, nearest first."""
    size: int
    """Bytes in its own layer."""
    sandbox_id: str
    state: Path
    backend: str = "namespace"
    """What it was taken with, and can be started with."""

    @property
    def folder(self) -> Path:
        return self.state / "snapshots" / self.id

    def layers(self) -> tuple[str, ...]:
        """The folders to mount, topmost first."""
        chain = (self.id, *self.parents)
        folders = [self.state / "snapshots" / each / "layer" for each in chain]
        for each, folder in zip(chain, folders, strict=True):
            if not folder.is_dir():
                raise NotFound(f"snapshot {self.id} needs {each}, which is gone")
        return tuple(str(folder) for folder in folders)

    def delete(self) -> None:
        """Remove it; refused while another snapshot builds on it."""
        for other in list_snapshots(self.state):
            if self.id in other.parents:
                raise Refused(f"{other.id} builds on {self.id}", hint=f"delete {other.id} first")
        gone = self.folder.with_name(f"{self.id}.gone")
        with contextlib.suppress(FileNotFoundError):
            self.folder.rename(gone)
            shutil.rmtree(gone)


def list_snapshots(state: Path) -> list[Snapshot]:
    """Every snapshot kept here, oldest first."""
    return [_read(path, state) for path in sorted(state.glob("snapshots/snap_*/meta.json"))]


def get_snapshot(state: Path, id: str) -> Snapshot:
    """The snapshot of this id."""
    path = state / "snapshots" / id / "meta.json"
    if "/" in id or not path.is_file():
        raise NotFound(f"there is no snapshot {id}", hint="`holdfast sandbox snapshots` lists them")
    return _read(path, state)


def _read(path: Path, state: Path) -> Snapshot:
    data: dict[str, Any] = json.loads(path.read_text())
    return Snapshot(
        id=str(data["id"]),
        created_at=datetime.fromisoformat(data["created_at"]),
        parents=tuple(data["parents"]),
        size=int(data["size"]),
        sandbox_id=str(data["sandbox_id"]),
        state=state,
        backend=str(data.get("backend", "namespace")),
    )


def keep(
    state: Path, upper: int, below: tuple[str, ...], sandbox_id: str, owner: int | None
) -> Snapshot:
    """Copy a writable layer (a folder's descriptor) to disk, whole or not at all."""
    with Draft(state, sandbox_id) as draft:
        size = _Copy(owner).tree(upper, draft.layer)
        parents = tuple(Path(layer).parent.name for layer in below)
        return draft.finish("namespace", size, parents)


class Draft:
    """A snapshot in the making: there once it is finished, or gone."""

    def __init__(self, state: Path, sandbox_id: str) -> None:
        self.id = new_id("snap")
        self._state, self._sandbox_id = state, sandbox_id
        self._folder = state / "snapshots" / f"{self.id}.draft"
        self.layer = self._folder / "layer"

    def __enter__(self) -> Draft:
        self.layer.mkdir(parents=True)
        return self

    def finish(self, backend: str, size: int, parents: tuple[str, ...] = ()) -> Snapshot:
        """What was written to `layer` is the snapshot."""
        made = Snapshot(
            self.id, datetime.now(UTC), parents, size, self._sandbox_id, self._state, backend
        )
        meta = {
            "id": self.id,
            "created_at": made.created_at.isoformat(),
            "parents": list(parents),
            "size": size,
            "sandbox_id": self._sandbox_id,
            "backend": backend,
        }
        (self._folder / "meta.json").write_text(json.dumps(meta))
        self._folder.rename(made.folder)
        return made

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class _Copy:
    """Copies a tree by descriptors, from one folder to another."""

    def __init__(self, owner: int | None) -> None:
        self._owner = owner
        self._links: dict[int, str] = {}
        self._size = 0

    def tree(self, source: int, target: Path) -> int:
        """Copy everything below `source`; returns the bytes copied."""
        self._folder(source, str(target), 0)
        return self._size

    def _folder(self, source: int, target: str, depth: int) -> None:
        if depth > _DEEPEST:
            raise SandboxError(f"folders more than {_DEEPEST} deep can't be kept in a snapshot")
        for name, info in _entries(source):
            path = f"{target}/{name}"
            mode = info.st_mode
            if stat.S_ISDIR(mode):
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=source)
                try:
                    os.mkdir(path)
                    self._opaque(inner, path)
                    self._folder(inner, path, depth + 1)
                finally:
                    os.close(inner)
            elif stat.S_ISLNK(mode):
                os.symlink(os.readlink(name, dir_fd=source), path)
            elif stat.S_ISREG(mode):
                self._file(source, name, info, path)
            elif stat.S_ISCHR(mode) and info.st_rdev == 0:
                os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))  # overlay's mark for "removed"
                continue
            else:
                continue  # sockets and pipes mean nothing to another sandbox
            self._finish(path, info)

    def _opaque(self, source: int, path: str) -> None:
        try:
            value = os.getxattr(source, _OPAQUE)
        except OSError as error:
            if error.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
                raise
        else:
            os.setxattr(path, _OPAQUE, value)

    def _file(self, source: int, name: str, info: os.stat_result, path: str) -> None:
        first = self._links.get(info.st_ino) if info.st_nlink > 1 else None
        if first is not None:
            os.link(first, path)
            return
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=source)
        try:
            out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.ftruncate(out, info.st_size)
                for start, end in _data(fd, info.st_size):
                    self._size += end - start
                    place = os.lseek(out, start, os.SEEK_SET)
                    while place < end:
                        place += os.sendfile(out, fd, place, min(_COPY, end - place))
            finally:
                os.close(out)
        finally:
            os.close(fd)
        if info.st_nlink > 1:
            self._links[info.st_ino] = path

    def _finish(self, path: str, info: os.stat_result) -> None:
        if self._owner is not None:
            os.chown(path, self._owner, self._owner, follow_symlinks=False)
        if not stat.S_ISLNK(info.st_mode):
            os.chmod(path, stat.S_IMODE(info.st_mode) & 0o1777)
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns), follow_symlinks=False)


def _entries(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    for name in os.listdir(folder):
        yield name, os.stat(name, dir_fd=folder, follow_symlinks=False)


def _data(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """The parts of a file that hold data; holes are left out."""
    place = 0
    while place < size:
        try:
            start = os.lseek(fd, place, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        place = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, place
