"""One batch on its way to PostgreSQL: what it gathers goes to the server in few messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import StoreError
from holdfast.store.postgres import log_order
from holdfast.store.postgres.connection import PostgresConnection
from holdfast.store.sqlite.database import Transaction

COPY_EVENTS = """
COPY events (run_id, seq, type, key, at, meta, value, blob, hash, log)
FROM STDIN (FORMAT BINARY)
"""
EVENT_TYPES = (
    "text", "int8", "text", "text", "float8", "text", "bytea", "text", "bytea", "int8",
)  # fmt: skip


class NotShared(Exception):
    """The batch concerns more than its own runs: it has to be written alone."""


@dataclass(slots=True)
class PostgresTransaction(Transaction):
    """One batch's view of the database."""

    number: int = 0
    """Of the transaction, with the store's base: the first part of its events' places."""
    placed: int = 0
    """How many events have their place."""

    shared: bool = False
    """Whether others write at the same time. What is written `later` goes to the server at once,
    at the end: whoever reads it in the same batch calls `flush` first."""
    gathered: dict[str, list[tuple[Any, ...]]] = field(
        default_factory=dict[str, list[tuple[Any, ...]]]
    )

    @property
    def gathers(self) -> bool:
        return self.shared

    def later(self, sql: str, parameters: tuple[Any, ...]) -> None:
        if self.shared:
            self.gathered.setdefault(sql, []).append(parameters)
        else:
            self.execute(sql, parameters)

    @property
    def written(self) -> int:
        gathered = sum(map(len, self.gathered.values()))
        return self.connection.total_changes + len(self.rows) + gathered

    def flush(self) -> None:
        for sql, parameters in self.gathered.items():
            self.connection.executemany(sql, parameters)
        self.gathered.clear()
        rows = self.rows
        if not rows:
            return
        assert isinstance(self.connection, PostgresConnection)
        first = (self.number << log_order.BITS) + self.placed
        self.placed += len(rows)
        if self.placed >= 1 << log_order.BITS:
            raise StoreError(f"{self.placed:,} events are too many for one transaction")
        numbered = ((*row, first + place) for place, row in enumerate(rows))
        self.connection.copy(COPY_EVENTS, EVENT_TYPES, numbered)
        self.connection.total_changes += len(rows)
        rows.clear()
