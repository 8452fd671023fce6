"""Opening a store by its name: the one place above the kinds of stores that knows them.

A name is the path of a SQLite file. `:memory:` keeps a ledger in this process alone.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.store.base import Store
from holdfast.store.health import Health
from holdfast.store.inspection import Inspection
from holdfast.store.ledger import KEPT_SECONDS, Ledger
from holdfast.store.parts import StoreParts
from holdfast.store.sandboxes import Dropped, SandboxRecords, SandboxWriter
from holdfast.store.sqlite import health
from holdfast.store.sqlite.parts import SqliteParts

Name = str | Path


def absolute(name: Name) -> str:
    """The store's name in full, the same in whatever folder this process goes on to work."""
    return str(Path(name).absolute())


def exists(name: Name) -> bool:
    """Whether there is such a store already; opening one that is not there makes it."""
    return Path(name).exists()


def parts(name: Name) -> StoreParts:
    """The store of this name, of whichever kind it is."""
    return SqliteParts(Path(name))


def runs(name: Name, process: str) -> Store:
    """The runs of a store, to be opened; `process` identifies who opens it among the others."""
    return parts(name).runs(process)


def ledger(name: Name, *, replays_for: float = KEPT_SECONDS) -> Ledger:
    """Its model calls, spend, limits and keys; to be closed."""
    return parts(name).ledger(replays_for=replays_for)


def sandbox_records(name: Name) -> SandboxRecords:
    """Its sandboxes, for those who look; to be closed."""
    return parts(name).sandbox_records()


def sandbox_writer(name: Name, *, keep: float | None = None) -> SandboxWriter:
    """What this process's sandboxes do, on its way there; what is older than `keep` is dropped."""
    return parts(name).sandbox_writer(keep=keep)


def inspection(name: Name) -> Inspection:
    """Everything for those who look; the store has to exist. To be closed."""
    return parts(name).inspection()


def examine(name: Name) -> Health:
    """What can be said of a store without opening it for work."""
    return parts(name).examine()


def software() -> tuple[str, str, bool]:
    """What keeps stores here, its version, and whether that is new enough."""
    return health.software()


def prune_sandboxes(name: Name, keep: float) -> Dropped:
    """Drop the records of sandboxes that ended more than `keep` seconds ago."""
    return parts(name).prune_sandboxes(keep)
