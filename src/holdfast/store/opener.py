"""Opening a store by its name: the one place above `store/sqlite` that knows which kinds there are.

A name is the path of a SQLite file. `:memory:` keeps a ledger in this process alone.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.store.base import Store
from holdfast.store.health import Health
from holdfast.store.inspection import Inspection
from holdfast.store.ledger import KEPT_SECONDS, Ledger
from holdfast.store.sandboxes import Dropped, SandboxRecords, SandboxWriter
from holdfast.store.sqlite import health, sandbox_cleanup
from holdfast.store.sqlite.inspection import SqliteInspection
from holdfast.store.sqlite.ledger import SqliteLedger
from holdfast.store.sqlite.sandbox_writer import SqliteSandboxWriter
from holdfast.store.sqlite.sandboxes import SqliteSandboxRecords
from holdfast.store.sqlite.store import SqliteStore

Name = str | Path


def runs(name: Name, process: str) -> Store:
    """The runs of a store, to be opened; `process` identifies who opens it among the others."""
    return SqliteStore(Path(name), process)


def ledger(name: Name, *, replays_for: float = KEPT_SECONDS) -> Ledger:
    """Its model calls, spend, limits and keys; to be closed."""
    return SqliteLedger(name, replays_for=replays_for)


def sandbox_records(name: Name) -> SandboxRecords:
    """Its sandboxes, for those who look; to be closed."""
    return SqliteSandboxRecords(name)


def sandbox_writer(name: Name, *, keep: float | None = None) -> SandboxWriter:
    """What this process's sandboxes do, on its way there; what is older than `keep` is dropped."""
    return SqliteSandboxWriter(Path(name), keep=keep)


def inspection(name: Name) -> Inspection:
    """Everything for those who look; the store has to exist. To be closed."""
    return SqliteInspection(Path(name))


def examine(name: Name) -> Health:
    """What can be said of a store without opening it for work."""
    return health.examine(Path(name))


def software() -> tuple[str, str, bool]:
    """What keeps stores here, its version, and whether that is new enough."""
    return health.software()


def prune_sandboxes(name: Name, keep: float) -> Dropped:
    """Drop the records of sandboxes that ended more than `keep` seconds ago."""
    return sandbox_cleanup.prune_store(Path(name), keep)
