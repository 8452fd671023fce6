"""A connection to PostgreSQL that takes the statements of the store as SQLite's does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import postgres, pq
from psycopg.abc import Buffer
from psycopg.adapt import Dumper, Loader

from holdfast.errors import StoreError, StoreFull, StoreReadOnly
from holdfast.store.connection import DatabaseFault, Parameters
from holdfast.store.postgres.dialect import translate
from holdfast.store.postgres.url import PostgresUrl

CONNECT_SECONDS = 10
LARGEST = 2**63
KEEPALIVE: dict[str, Any] = {
    # A host that is gone is noticed in half a minute, not after the system's two hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
LOST = ("08", "57P")
"""States that say the connection or the server is gone; it may come back."""
FAULTS = (psycopg.Error, OSError)
"""What goes wrong with a connection; the driver passes some of the system's errors on."""
AGAIN = ("40001", "40P01", "55P03")
"""States of a transaction that may succeed if it is tried again."""


class _BoolDumper(Dumper):
    """Flags are numbers, as in SQLite."""

    oid = postgres.types["int2"].oid

    def dump(self, obj: Any) -> Buffer | None:
        return b"1" if obj else b"0"


NUL = "\ufdd0"
"""Text in PostgreSQL has no NUL: this, which is no character, stands before a `0` for it, and
before a `1` for itself."""


def _as_kept(text: str) -> bytes:
    if "\0" in text or NUL in text:
        text = text.replace(NUL, NUL + "1").replace("\0", NUL + "0")
    return text.encode()


class _TextDumper(Dumper):
    """Text of whatever type the statement takes it for."""

    def dump(self, obj: Any) -> Buffer | None:
        return _as_kept(obj)


class _TextBinaryDumper(Dumper):
    """Text of the type text, for COPY."""

    format = pq.Format.BINARY
    oid = postgres.types["text"].oid

    def dump(self, obj: Any) -> Buffer | None:
        return _as_kept(obj)


class _TextLoader(Loader):
    def load(self, data: Buffer) -> str:
        text = bytes(data).decode()
        if NUL in text:
            text = text.replace(NUL + "0", "\0").replace(NUL + "1", NUL)
        return text


class _NumberLoader(Loader):
    """Sums of whole numbers are whole numbers."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return float(text) if b"." in text else int(text)


def connect(url: PostgresUrl) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection that begins and ends transactions when it is told to."""
    raw = psycopg.connect(
        url.conninfo,
        autocommit=True,
        connect_timeout=CONNECT_SECONDS,
        application_name="holdfast",
        target_session_attrs="read-write",
        prepare_threshold=5 if url.prepare else None,
        client_encoding="utf8",
        **KEEPALIVE,
    )
    raw.adapters.register_dumper(str, _TextBinaryDumper)
    raw.adapters.register_dumper(str, _TextDumper)
    raw.adapters.register_loader("text", _TextLoader)
    raw.adapters.register_dumper(bool, _BoolDumper)
    raw.adapters.register_loader("numeric", _NumberLoader)
    return raw


class PostgresConnection:
    """Takes statements with `?` for parameters; says what it takes `sqlite3` to say."""

    def __init__(self, raw: psycopg.Connection[tuple[Any, ...]]) -> None:
        self.raw = raw
        self.total_changes = 0

    def execute(self, sql: str, parameters: Parameters = (), /) -> psycopg.Cursor[tuple[Any, ...]]:
        for value in _values(parameters):
            if isinstance(value, int) and not -LARGEST <= value < LARGEST:
                raise OverflowError(f"{value} is too large for an integer of 64 bits")
        try:
            cursor = self.raw.execute(translate(sql), parameters)
        except FAULTS as error:
            raise DatabaseFault(str(error)) from error
        if cursor.rowcount > 0 and not (cursor.statusmessage or "").startswith("SELECT"):
            self.total_changes += cursor.rowcount
        return cursor

    def executemany(
        self, sql: str, rows: Iterable[Parameters], /
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        try:
            cursor = self.raw.cursor()
            cursor.executemany(translate(sql), rows)
        except FAULTS as error:
            raise DatabaseFault(str(error)) from error
        self.total_changes += max(cursor.rowcount, 0)
        return cursor

    def script(self, *statements: str) -> None:
        """Statements without parameters, in one go, as they are."""
        try:
            self.raw.execute(";".join(statements).encode())
        except FAULTS as error:
            raise DatabaseFault(str(error)) from error

    def copy(self, sql: str, types: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Rows into a table, in PostgreSQL's own way."""
        try:
            with self.raw.cursor().copy(sql.encode()) as copy:
                copy.set_types(types)
                for row in rows:
                    copy.write_row(row)
        except FAULTS as error:
            raise DatabaseFault(str(error)) from error

    @property
    def in_transaction(self) -> bool:
        return self.raw.info.transaction_status != pq.TransactionStatus.IDLE

    @property
    def broken(self) -> bool:
        return self.raw.closed or self.raw.broken

    def close(self) -> None:
        self.raw.close()


def _values(parameters: Parameters) -> Iterable[Any]:
    return parameters.values() if isinstance(parameters, Mapping) else parameters


def state_of(error: BaseException) -> str | None:
    """PostgreSQL's code for what went wrong; "" if it was not PostgreSQL that said so."""
    cause = error.__cause__ if isinstance(error, DatabaseFault) else error
    if isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError):
        return cause.sqlstate or "08000"
    if isinstance(cause, OSError):
        return "08000"
    return (cause.sqlstate or "") if isinstance(cause, psycopg.Error) else None


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone, or the server that it was to."""
    state = state_of(error)
    return state is not None and state.startswith(LOST)


def may_succeed_again(error: BaseException) -> bool:
    """Whether the same transaction may succeed if it is tried again."""
    return is_lost(error) or state_of(error) in AGAIN


def as_store_error(error: BaseException, name: str) -> StoreError:
    """PostgreSQL's error as ours: what is wrong, and what to do."""
    state = state_of(error) or ""
    said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if state == "53100":
        return StoreFull(
            f"no space left for {name}", hint="free some space; what was recorded is safe"
        )
    if state in ("25006", "42501"):
        return StoreReadOnly(f"{name} can't be written: {said}", hint="check the user's rights")
    if state in ("42P01", "3F000"):
        return StoreError(f"there is no store at {name}", hint="run something in it to make it")
    if state.startswith("28"):
        return StoreError(f"{name} refuses the user: {said}", hint="check user and password")
    if state.startswith("08"):
        return StoreError(f"{name} can't be reached: {said}", hint="is the server running?")
    return StoreError(f"{name}: {said}")
