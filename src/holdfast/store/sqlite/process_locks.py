"""Who is alive: each process that makes calls or sandboxes holds a lock on a file of its own.

The kernel drops the lock however the process ends, so a taken lock is proof of life and a free
one of death: no heartbeats, no guessing at process ids. Files of the dead are removed by whoever
finds them.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Protocol

from holdfast.ids import new_id
from holdfast.store.connection import Connection


def owners_folder(store: Path) -> Path:
    """Where the processes that write to this store have their locks."""
    return store.with_name(store.name + ".owners")


def is_free(folder: Path, owner: str) -> bool:
    """Whether nobody holds the lock of this name: its process is gone."""
    try:
        file = os.open(folder / owner, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


class Owners(Protocol):
    """Who has calls or sandboxes in hand, and whether they are alive."""

    def is_dead(self, connection: Connection, owner: str) -> bool:
        """Whether the process behind this id is gone."""
        ...

    def forget(self, connection: Connection, owner: str) -> None:
        """Remove what says that a dead owner lives."""
        ...


class Owner(Owners, Protocol):
    """This process's claim to its calls, or to its sandboxes."""

    id: str

    def hold(self, connection: Connection) -> None:
        """Begin to be alive for the others, with the transaction that is under way."""
        ...

    def close(self) -> None: ...


class OwnerFiles:
    """The owners on this machine, each with a lock on a file in the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def is_dead(self, connection: Connection, owner: str) -> bool:
        return is_free(self._folder, owner)

    def forget(self, connection: Connection, owner: str) -> None:
        (self._folder / owner).unlink(missing_ok=True)


class FileOwner:
    """A claim by a lock on a file; without a folder there are no others."""

    def __init__(self, folder: Path | None) -> None:
        self.id = new_id("own")
        self._folder = folder
        self._file: int | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(folder / self.id, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def hold(self, connection: Connection) -> None:
        """The lock is held already."""

    def is_dead(self, connection: Connection, owner: str) -> bool:
        """Whether the process behind this id is gone."""
        if owner == self.id:
            return False
        if self._folder is None:
            return True
        return is_free(self._folder, owner)

    def forget(self, connection: Connection, owner: str) -> None:
        """Remove a dead owner's file."""
        if self._folder is not None:
            (self._folder / owner).unlink(missing_ok=True)

    def close(self) -> None:
        if self._file is not None and self._folder is not None:
            (self._folder / self.id).unlink(missing_ok=True)
            os.close(self._file)
            self._file = None
