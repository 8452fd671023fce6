"""What is asked of a sandbox: its limits and settings, checked before anything is started."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from holdfast.errors import UsageError
from holdfast.sandbox.namespace.view import WORKSPACE
from holdfast.sandbox.network import Network

Runtime = Literal["python", "node"]
Size = int | str

_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)", re.IGNORECASE)

DEFAULT_TIMEOUT = 300.0
DEFAULT_OUTPUT = 10 * 1024 * 1024


def size(value: Size) -> int:
    """A number of bytes: `size("512mb") == 512 * 1024 * 1024`."""
    if isinstance(value, int):
        number = value
    else:
        found = _SIZE.fullmatch(value.strip())
        unit = found.group(2).lower().replace("i", "") if found else ""
        unit = unit if unit in _UNITS else f"{unit}b"
        if not found or unit not in _UNITS:
            raise UsageError(f"{value!r} is no size", hint='write it as "512mb" or "2gb"')
        number = int(float(found.group(1)) * _UNITS[unit])
    if number <= 0:
        raise UsageError(f"{value!r} is no size", hint="it must be more than 0")
    return number


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sandbox may use. Files live in memory, so `disk` is a part of `memory`."""

    cpus: float = 1.0
    memory: int = 1 << 30
    disk: int = 512 << 20
    inodes: int = 131072
    pids: int = 256
    open_files: int = 1024

    @staticmethod
    def of(
        *,
        cpus: float = 1.0,
        memory: Size = 1 << 30,
        disk: Size | None = None,
        inodes: int | None = None,
        pids: int = 256,
        open_files: int = 1024,
    ) -> Limits:
        """Limits as a caller writes them; `disk` is half of `memory` unless given."""
        whole = size(memory)
        space = whole // 2 if disk is None else size(disk)
        if whole < 32 << 20:
            raise UsageError(f"{whole} bytes of memory are too few", hint="give at least 32mb")
        if space > whole:
            raise UsageError(
                f"disk ({space} bytes) is larger than memory ({whole} bytes)",
                hint="a sandbox keeps its files in memory: raise memory= to at least disk=",
            )
        if cpus <= 0 or pids < 4 or open_files < 16:
            raise UsageError("limits too small", hint="cpus > 0, pids >= 4, open_files >= 16")
        count = max(1024, space // 4096) if inodes is None else inodes
        return Limits(cpus, whole, space, count, pids, open_files)


@dataclass(frozen=True, slots=True)
class Spec:
    """Everything a backend must know to make a sandbox."""

    runtime: Runtime = "python"
    limits: Limits = field(default_factory=Limits)
    network: Network = field(default_factory=Network)
    layers: tuple[str, ...] = ()
    """Folders of the snapshot it starts from, topmost first."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def pool_key(self) -> tuple[object, ...]:
        """Sandboxes of the same key are interchangeable until one is used."""
        return (self.limits, self.network.ports, self.layers)


_MOST_ARGUMENTS = 1024 * 1024


def inside(path: str) -> str:
    """A path in the sandbox: absolute, or below the workspace."""
    if "\0" in path:
        raise UsageError("a path can't hold a zero byte")
    return posixpath.normpath(posixpath.join(WORKSPACE, path))


def checked_env(env: Mapping[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise UsageError(f"{name!r} is no environment variable")
    return dict(env)


_MOST_METADATA = 16 * 1024


def checked_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """What is said of a sandbox: names and values, both text, and little of it."""
    size = 0
    for name, value in metadata.items():
        if not (isinstance(name, str) and isinstance(value, str) and name):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"metadata {name!r} is no text", hint='metadata={"user": "ann"}')
        size += len(name) + len(value)
    if size > _MOST_METADATA:
        raise UsageError(f"metadata of more than {_MOST_METADATA} characters")
    return dict(metadata)


def check_arguments(argv: tuple[str, ...]) -> None:
    if any("\0" in word for word in argv):
        raise UsageError("an argument can't hold a zero byte")
    if not argv[0]:
        raise UsageError("no command given")
    if sum(len(os.fsencode(word)) + 1 for word in argv) > _MOST_ARGUMENTS:
        raise UsageError(
            f"the arguments are longer than {_MOST_ARGUMENTS} bytes",
            hint="write them to a file in the sandbox, or pass them as stdin",
        )
