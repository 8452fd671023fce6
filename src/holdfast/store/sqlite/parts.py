"""The parts of a store in a SQLite file. `:memory:` keeps a ledger in this process alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.store.health import Health
from holdfast.store.ledger import KEPT_SECONDS
from holdfast.store.sandboxes import Dropped
from holdfast.store.sqlite import health, sandbox_cleanup
from holdfast.store.sqlite.inspection import SqliteInspection
from holdfast.store.sqlite.ledger import SqliteLedger
from holdfast.store.sqlite.sandbox_writer import SqliteSandboxWriter
from holdfast.store.sqlite.sandboxes import SqliteSandboxRecords
from holdfast.store.sqlite.store import SqliteStore


@dataclass(frozen=True)
class SqliteParts:
    """The store in the file at `path`."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def runs(self, process: str) -> SqliteStore:
        return SqliteStore(self.path, process)

    def ledger(self, *, replays_for: float = KEPT_SECONDS) -> SqliteLedger:
        return SqliteLedger(self.path, replays_for=replays_for)

    def sandbox_records(self) -> SqliteSandboxRecords:
        return SqliteSandboxRecords(self.path)

    def sandbox_writer(self, *, keep: float | None = None) -> SqliteSandboxWriter:
        return SqliteSandboxWriter(self.path, keep=keep)

    def inspection(self) -> SqliteInspection:
        return SqliteInspection(self.path)

    def examine(self) -> Health:
        return health.examine(self.path)

    def prune_sandboxes(self, keep: float) -> Dropped:
        return sandbox_cleanup.prune_store(self.path, keep)
