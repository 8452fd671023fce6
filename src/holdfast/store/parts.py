"""What a store consists of: the one thing that the author of another kind of store provides.

All parts that are opened by one `StoreParts`, here or in other processes, share their records.
`holdfast.testing.store_conformance` holds a store to what its parts promise.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.store.base import Store
from holdfast.store.health import Health
from holdfast.store.inspection import Inspection
from holdfast.store.ledger import KEPT_SECONDS, Ledger
from holdfast.store.sandboxes import Dropped, SandboxRecords, SandboxWriter


class StoreParts(Protocol):
    """One store, by its name: whatever is opened here is to be closed by whoever opened it."""

    @property
    def name(self) -> str:
        """What to call the store in messages; no password is in it."""
        ...

    def runs(self, process: str) -> Store:
        """Its runs, to be opened; `process` identifies who opens them among the others."""
        ...

    def ledger(self, *, replays_for: float = KEPT_SECONDS) -> Ledger:
        """Its model calls, spend, limits and keys."""
        ...

    def sandbox_records(self) -> SandboxRecords:
        """Its sandboxes, for those who look."""
        ...

    def sandbox_writer(self, *, keep: float | None = None) -> SandboxWriter:
        """What this process's sandboxes do; what is older than `keep` seconds is dropped."""
        ...

    def inspection(self) -> Inspection:
        """Everything for those who look; the store has to exist."""
        ...

    def examine(self) -> Health:
        """What can be said of the store without opening it for work."""
        ...

    def prune_sandboxes(self, keep: float) -> Dropped:
        """Drop the records of sandboxes that ended more than `keep` seconds ago."""
        ...
