"""What can be said about a store's file without opening it for work.

Nothing is made, migrated or locked here: a file that is missing, newer than this program or
read-only can be described, too.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from holdfast.store.health import Health
from holdfast.store.sqlite import schema, wake

COUNTS = "SELECT status, count(*) FROM runs GROUP BY status ORDER BY status"
WORKER_PREFIX = "wkr_"
OLDEST = (3, 35)  # RETURNING
MANY_WORKERS = 8
SHARED = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "ceph", "glusterfs"}
)
MOUNTS = Path("/proc/self/mounts")


def software() -> tuple[str, str, bool]:
    """SQLite, its version, and whether that is new enough."""
    return "sqlite", sqlite3.sqlite_version, sqlite3.sqlite_version_info >= OLDEST


def examine(path: Path) -> Health:
    """Look at the store at `path`."""
    known = schema.migrations()[-1][0]
    if not path.exists():
        return Health(str(path), False, _can_be_made(path), known_schema=known)
    found: dict[str, Any] = {
        "path": str(path),
        "exists": True,
        "writable": os.access(path, os.W_OK) and os.access(path.parent, os.W_OK),
        "known_schema": known,
        "bytes": sum(file.stat().st_size for file in _files(path)),
        "workers": [name for name in wake.alive(path) if name.startswith(WORKER_PREFIX)],
    }
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as reading:
            found["schema_version"] = reading.execute("PRAGMA user_version").fetchone()[0]
            found["runs"] = dict(reading.execute(COUNTS).fetchall())
    except sqlite3.Error as error:
        found["problem"] = schema.as_store_error(error, path)
    return Health(**found, concerns=_concerns(path, len(found["workers"])))


def _concerns(path: Path, workers: int) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if workers > MANY_WORKERS:
        found.append((
            f"{workers} workers write to one file, one after the other",
            "a store in PostgreSQL lets them write at once: holdfast store copy moves it",
        ))  # fmt: skip
    kind = _file_system(path)
    if kind in SHARED:
        found.append((
            f"the store is on {kind}, where SQLite's locks do not hold",
            "put it on a local disk, or move it to PostgreSQL with holdfast store copy",
        ))  # fmt: skip
    return found


def _file_system(path: Path) -> str:
    """The kind of file system that a file is on; "" where that can't be known."""
    try:
        mounts = [line.split() for line in MOUNTS.read_text().splitlines()]
    except OSError:
        return ""
    folder = path.resolve()
    under = [each for each in mounts if folder.is_relative_to(each[1].replace("\\040", " "))]
    return max(under, key=lambda each: len(each[1]))[2] if under else ""


def _files(path: Path) -> list[Path]:
    return [file for file in (path, path.with_name(f"{path.name}-wal")) if file.exists()]


def _can_be_made(path: Path) -> bool:
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK)
