"""Snapshots: what a sandbox changed, kept as an overlay layer others can start from.

Taking one pauses the sandbox's processes, copies its writable layer to disk and lets them go on;
starting from one mounts it, whatever its size. The copy trusts nothing in the layer: links are
never followed, holes stay holes and hard links stay links, so it can't grow beyond the limits
the sandbox had.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import stat
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.errors import NotFound, Refused, SandboxError
from holdfast.ids import new_id
from holdfast.sandbox.base import Instance
from holdfast.sandbox.channel import Channel
from holdfast.sandbox.inside import frames
from holdfast.sandbox.inside.archive import DEEPEST, ROOTS
from holdfast.sandbox.namespace import uids
from holdfast.sandbox.namespace.view import UID
from holdfast.sandbox.spec import Limits, Spec

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

    @property
    def marks(self) -> Path:
        """The runs it is kept for; no such folder if it was taken for its own sake."""
        return self.folder / "kept_for"

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


@dataclass(frozen=True, slots=True)
class KeptFor:
    """A run that needs a snapshot, and the store it is in: a file in the snapshot's `kept_for`."""

    run_id: str
    store: str

    def mark(self, folder: Path) -> None:
        """Say so, in whole or not at all."""
        marks = folder / "kept_for"
        marks.mkdir(exist_ok=True)
        (marks / f".{self.run_id}").write_text(self.store)
        (marks / f".{self.run_id}").rename(marks / self.run_id)


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
    state: Path,
    upper: int,
    below: tuple[str, ...],
    sandbox_id: str,
    owner: int | None,
    limits: Limits,
    run: KeptFor | None = None,
) -> Snapshot:
    """Copy a writable layer (a folder's descriptor) to disk, whole or not at all."""
    with Draft(state, sandbox_id, run) as draft:
        size = _Copy(owner, limits).tree(upper, draft.layer)
        parents = tuple(Path(layer).parent.name for layer in below)
        return draft.finish("namespace", size, parents)


class Draft:
    """A snapshot in the making: there once it is finished, or gone; `run` is whose it is."""

    def __init__(self, state: Path, sandbox_id: str, run: KeptFor | None = None) -> None:
        self._run = run
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
        if self._run is not None:
            self._run.mark(self._folder)
        self._folder.rename(made.folder)
        return made

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class _Copy:
    """Copies a tree by descriptors, from one folder to another."""

    def __init__(self, owner: int | None, limits: Limits) -> None:
        self._owner = owner
        self._most, self._entries = limits.disk, 2 * limits.inodes
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
            self._entries -= 1
            if self._entries < 0:
                raise _grows("files")
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
                    place = os.lseek(out, start, os.SEEK_SET)
                    while place < end:
                        sent = os.sendfile(out, fd, place, min(_COPY, end - place))
                        if not sent:
                            break  # it was cut meanwhile; the rest is a hole
                        place += sent
                        self._size += sent
                        if self._size > self._most:
                            raise _grows("bytes")
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


def _grows(what: str) -> SandboxError:
    return SandboxError(
        f"the sandbox has more {what} than it may: they changed while they were copied",
        hint="stop what writes in it before taking a snapshot",
    )


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
        try:
            place = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # cut meanwhile
                return
            raise
        yield start, place


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


_PAUSE_LIMIT = 30.0
_SILENCE = 60.0  # an agent that is reading has something to tell sooner
_PACKING = ("gvisor",)
"""Backends whose files only the agent can reach, and that can start from what it tells."""


async def take_snapshot(
    state: Path,
    backend: str,
    instance: Instance,
    channel: Channel,
    spec: Spec,
    run: KeptFor | None = None,
) -> Snapshot:
    """Keep a sandbox's files as they are; its processes are paused meanwhile."""
    if instance.upper is None and backend not in _PACKING:
        raise SandboxError(
            f"backend {backend!r} can't take snapshots", hint="namespace and gvisor can"
        )
    async with _still(instance, channel):
        if instance.upper is None:
            return await _told(state, backend, instance.id, channel, spec, run)
        owner = uids.FIRST if os.geteuid() == 0 else None
        return await asyncio.to_thread(
            keep, state, instance.upper, spec.layers, instance.id, owner, spec.limits, run
        )


@asynccontextmanager
async def _still(instance: Instance, channel: Channel) -> AsyncGenerator[None]:
    """Its processes do not run: frozen from outside, or else stopped by a signal.

    A signal does not hold what wakes itself by a timer; what is copied is bounded all the same.
    """
    if await asyncio.to_thread(instance.freeze):
        try:
            yield
        finally:
            instance.thaw()
        return
    try:
        async with asyncio.timeout(_PAUSE_LIMIT):
            await channel.request("pause")
    except TimeoutError:
        raise SandboxError(f"{instance.id} did not pause within {_PAUSE_LIMIT:.0f} s") from None
    try:
        yield
    finally:
        channel.tell("resume")


async def _told(
    state: Path,
    backend: str,
    id: str,
    channel: Channel,
    spec: Spec,
    run: KeptFor | None,
) -> Snapshot:
    """Whole, not what differs from the one below: the agent sees only the whole."""
    limits = spec.limits
    with Draft(state, id, run) as draft:
        # Each of the roots may be filled, as far as its memory goes, over what it started from.
        below = sum(_read(Path(layer).parent / "meta.json", state).size for layer in spec.layers)
        most = min(len(ROOTS) * limits.disk, limits.memory) + below
        unpacker = Unpacker(
            draft.layer,
            owner=UID,
            most_bytes=most,
            most_entries=2 * len(ROOTS) * max(limits.inodes, 1 << 20),
        )
        try:
            await channel.stream("pack", unpacker.take, idle=_SILENCE)
            size = await asyncio.to_thread(unpacker.finish)
        finally:
            unpacker.close()
        return draft.finish(backend, size)
