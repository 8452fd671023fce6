"""Power cuts: what is on the disk when only what was synced is sure to be there.

A worker runs under strace. From its writes and syncs the store's files are rebuilt as of every
moment: what was synced, and of what was written since any part, in any order, the last write
perhaps torn. -shm is left out: SQLite makes it anew.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
TRACED = "pwrite64,write,fsync,fdatasync,ftruncate,unlink"
SECTOR = 512
FOLDER = "/"
"""What the folder is called among the store's files: its sync makes removals durable."""


@dataclass(frozen=True)
class Write:
    offset: int
    data: bytes


@dataclass(frozen=True)
class Truncate:
    length: int


@dataclass(frozen=True)
class Unlink:
    pass


Change = Write | Truncate | Unlink


@dataclass(frozen=True)
class Sync:
    pass


@dataclass(frozen=True)
class Operation:
    """One thing that happened to a file, or an acknowledgement (then `ack` is its line)."""

    file: str
    what: Change | Sync | None
    ack: str = ""


def record(folder: Path, workflow: str, *options: str) -> list[Operation]:
    """Run a worker under strace; everything it did to its store, and what was acknowledged."""
    folder.mkdir()
    store, trace = folder / "store.db", folder / "trace"
    program = [sys.executable, str(TESTS / "crash" / "traced.py"), str(store), workflow, *options]
    strace = ["strace", "-f", "-y", "-qq", "-xx", "-s", "1000000", "-e", f"trace={TRACED}"]
    subprocess.run(
        [*strace, "-o", str(trace), *program],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return list(_operations(trace, store))


_CALL = re.compile(r"^(\d+) +(\w+)\((.*)$")
_RESUMED = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>(.*)$")
_FILE = re.compile(r"^(\d+)<((?:\\x[0-9a-f]{2})+)>")
_LAST_NUMBER = re.compile(r", (\d+) *\) *= ")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


def _operations(trace: Path, store: Path) -> Iterator[Operation]:
    unfinished: dict[str, str] = {}
    for line in trace.read_text().splitlines():
        if (call := _CALL.match(line)) is not None:
            pid, name, rest = call.groups()
            if rest.endswith("<unfinished ...>"):
                unfinished[pid] = rest.removesuffix("<unfinished ...>")
                continue
        elif (resumed := _RESUMED.match(line)) is not None:
            pid, name, rest = resumed.groups()
            rest = unfinished.pop(pid) + rest
        else:
            continue
        found = _operation(name, rest, store)
        if found is not None:
            yield found


def _operation(name: str, rest: str, store: Path) -> Operation | None:
    if name == "unlink":
        path = _unhex(_TEXT.findall(rest)[0]).decode()
        return _of_store(path, store, Unlink())
    where = _FILE.match(rest)
    if where is None:
        return None
    number, path = where[1], _unhex(where[2]).decode()
    if name == "write":
        data = _unhex(_TEXT.findall(rest)[0])
        acknowledges = number == "1" and data.startswith(b'["ack"')
        return Operation("", None, data.decode()) if acknowledges else None
    if name == "pwrite64":
        offset = int(_LAST_NUMBER.findall(rest)[-1])
        return _of_store(path, store, Write(offset, _unhex(_TEXT.findall(rest)[0])))
    if name == "ftruncate":
        length = int(_LAST_NUMBER.findall(rest)[-1])
        return _of_store(path, store, Truncate(length))
    return _of_store(path, store, Sync())


def _of_store(path: str, store: Path, what: Change | Sync) -> Operation | None:
    if path == str(store.parent):
        return Operation(FOLDER, what)
    suffix = path.removeprefix(str(store))
    return Operation(suffix, what) if suffix in ("", "-wal", "-journal") else None


def _unhex(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


# --- the disk ---


@dataclass
class File:
    durable: bytes | None = None
    """What is on the disk for sure; None: no such file."""
    pending: list[Change] = field(default_factory=list[Change])

    def sync_removal(self) -> None:
        """The folder was synced: if the file was removed, that is for good."""
        if Unlink() in self.pending:
            self.durable = None
            last = max(n for n, change in enumerate(self.pending) if change == Unlink())
            self.pending = self.pending[last + 1 :]


def apply(content: bytes | None, changes: list[Change]) -> bytes | None:
    data = None if content is None else bytearray(content)
    for change in changes:
        if isinstance(change, Unlink):
            data = None
            continue
        data = bytearray() if data is None else data
        if isinstance(change, Truncate):
            data = data[: change.length].ljust(change.length, b"\0")
        else:
            end = change.offset + len(change.data)
            data.extend(b"\0" * (end - len(data)))
            data[change.offset : end] = change.data
    return None if data is None else bytes(data)


@dataclass(frozen=True)
class Image:
    """The store's files after a power cut, and what had been acknowledged before it."""

    moment: int
    files: dict[str, bytes]
    acknowledged: list[str]

    def put(self, folder: Path) -> Path:
        folder.mkdir()
        for suffix, content in self.files.items():
            (folder / f"store.db{suffix}").write_bytes(content)
        (folder / "acknowledged").write_text(
            "".join(json.dumps(json.loads(line)[1:]) + "\n" for line in self.acknowledged)
        )
        return folder / "store.db"


def images(operations: list[Operation], seed: int, extra: int) -> Iterator[Image]:
    """The disk as of every moment: without, with all, with some of what was not synced."""
    chance = random.Random(seed)
    files: dict[str, File] = {}
    acknowledged: list[str] = []
    for moment, operation in enumerate(operations):
        if operation.what is None:
            acknowledged.append(operation.ack)
            continue
        if operation.file == FOLDER:
            for file in files.values():
                file.sync_removal()
            continue
        file = files.setdefault(operation.file, File())
        if isinstance(operation.what, Sync):
            file.durable = apply(file.durable, file.pending)
            file.pending = []
        else:
            file.pending.append(operation.what)
        for chosen in _choices(files, chance, extra):
            contents = {
                name: apply(file.durable, chosen.get(name, [])) for name, file in files.items()
            }
            present = {name: data for name, data in contents.items() if data is not None}
            yield Image(moment, present, list(acknowledged))


def _choices(
    files: dict[str, File], chance: random.Random, extra: int
) -> Iterator[dict[str, list[Change]]]:
    yield {}
    if not any(file.pending for file in files.values()):
        return
    yield {name: file.pending for name, file in files.items()}
    for _ in range(extra):
        some: dict[str, list[Change]] = {}
        for name, file in files.items():
            kept = [_torn(c, chance) for c in file.pending if chance.random() < 0.5]
            if chance.random() < 0.3:
                chance.shuffle(kept)
            some[name] = kept
        yield some


def _torn(change: Change, chance: random.Random) -> Change:
    if isinstance(change, Write) and len(change.data) > SECTOR and chance.random() < 0.2:
        sectors = chance.randrange(len(change.data) // SECTOR) + 1
        return Write(change.offset, change.data[: sectors * SECTOR])
    return change
