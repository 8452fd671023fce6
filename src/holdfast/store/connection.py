"""What the statements of a store are carried out on: SQLite, or a connection that acts alike.

The SQL of `store/sqlite` is written so that more than one database takes it, with `?` or `:name`
for parameters. This is as much of `sqlite3` as it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol


class DatabaseFault(Exception):
    """What the database itself said of a statement; nobody's work in its transaction is done.

    SQLite's own errors are `sqlite3.Error`; those of other databases are the cause of this one.
    """


Parameters = Sequence[Any] | Mapping[str, Any]


class Cursor(Protocol):
    """The rows of one statement."""

    @property
    def rowcount(self) -> int: ...
    @property
    def description(self) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def close(self) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A database in a transaction."""

    @property
    def total_changes(self) -> int: ...
    def execute(self, sql: str, parameters: Any = ..., /) -> Cursor: ...
    def executemany(self, sql: str, rows: Iterable[Parameters], /) -> Cursor: ...
