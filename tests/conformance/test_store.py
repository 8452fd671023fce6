"""The conformance suite of stores: SQLite in a file and (as far as it goes) in memory, PostgreSQL."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

import postgres_server
from holdfast.clock import SystemClock
from holdfast.records import STEP_STARTED
from holdfast.store import opener
from holdfast.store.parts import StoreParts
from holdfast.store.sqlite.ledger import SqliteLedger
from holdfast.store.sqlite.memory import MemoryDatabase, MemoryStore
from holdfast.store.sqlite.parts import SqliteParts
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.store_conformance import (
    LedgerConformance,
    RunConformance,
    StoreConformance,
)
from holdfast.testing.store_conformance.records import append, claimed, event, opened


class TestSqlite(StoreConformance):
    @pytest.fixture
    def parts(self, tmp_path: Path) -> SqliteParts:
        return SqliteParts(tmp_path / "store.db")


@dataclass
class MemoryParts:
    """What the harness and simulations work on: stores on one connection, and a ledger."""

    database: MemoryDatabase = field(default_factory=MemoryDatabase)
    name = ":memory:"

    def runs(self, process: str) -> MemoryStore:
        return MemoryStore(self.database, process, SystemClock())

    def ledger(self, **options: float) -> SqliteLedger:
        return SqliteLedger(":memory:", **options)


class TestMemory(RunConformance, LedgerConformance):
    @pytest.fixture
    def parts(self) -> MemoryParts:
        return MemoryParts()

    # There is no thread but the loop's, and nothing to close.
    test_a_lease_can_be_renewed_from_another_thread = None
    test_a_run_can_be_parked_from_another_thread = None
    test_a_closed_store_refuses = None


async def test_a_backup_taken_while_writing_is_whole(tmp_path: Path) -> None:
    async with opened(SqliteParts(tmp_path / "store.db"), "wkr_1") as store:
        claim = await claimed(store)
        await append(store, claim, event(2, STEP_STARTED, "0/1", name="s"))
        await store.backup(tmp_path / "copy.db")
    copy = SqliteStore(tmp_path / "copy.db", "wkr_copy")
    await copy.open()
    try:
        assert len(await copy.load("run_1")) == 2
    finally:
        await copy.close()


@pytest.mark.skipif(postgres_server.programs() is None, reason=postgres_server.MISSING)
class TestPostgres(StoreConformance):
    @pytest.fixture
    def parts(self) -> StoreParts:
        return opener.parts(postgres_server.fresh_url())
