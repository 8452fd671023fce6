"""Opening the SQLite file: its settings, and its schema brought up to date.

The schema is the numbered files in `sql/`, applied in order, each in one transaction with its
number (SQLite's `user_version`). It only goes forward: a program that meets a higher number than
its own refuses by name rather than guess.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

from holdfast.errors import SchemaTooNew, StoreError, StoreFull, StoreReadOnly

BUSY_SECONDS = 10.0


@cache
def migrations() -> list[tuple[int, str, str]]:
    """Number, name and SQL of each migration, in order."""
    files = sorted((Path(__file__).parent / "sql").glob("*.sql"))
    return [(int(f.name[:4]), f.name, f.read_text(encoding="utf-8")) for f in files]


def connect(path: Path) -> sqlite3.Connection:
    """Open the database at `path`, made and migrated if need be; for use from one thread."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if str(path) != ":memory:":
            make_private(path)
        connection = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
    except (sqlite3.Error, OSError) as error:
        raise as_store_error(error, path) from error
    try:
        # FULL, not NORMAL: in WAL mode NORMAL loses acknowledged commits at a power cut.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA temp_store = MEMORY")
        migrate(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise as_store_error(error, path) from error
    except BaseException:
        connection.close()
        raise
    return connection


def make_private(path: Path) -> None:
    """Make the file, if there is none, for its owner alone: prompts and results are in it.

    SQLite gives the files beside it the same mode, also if the owner changes it later.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _sync_folder(folder: Path) -> None:
    """Make the end of the journal that came before WAL durable; SQLite does not.

    If its file came back after a power cut, SQLite would undo the change to WAL, and with it
    everything that was committed since. So nobody gets past the first migration without this.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def migrate(connection: sqlite3.Connection, path: Path | str) -> None:
    """Apply what is missing; refuse a schema newer than this program knows."""
    newest = migrations()[-1][0] if migrations() else 0
    if _version(connection) == newest:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)  # again, under the lock: another process may have done it
        if version > newest:
            raise SchemaTooNew(
                f"{path} has schema {version}; this program knows up to {newest}",
                hint="it was written by a newer Holdfast: upgrade this one, or use another file",
            )
        if version == 0 and connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
            raise _no_store(path)
        for number, _name, sql in migrations():
            if number > version:
                for statement in statements(sql):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {number}")
        if isinstance(path, Path):
            _sync_folder(path.parent)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    with closing(connection.execute("PRAGMA user_version")) as cursor:
        return int(cursor.fetchone()[0])


def statements(sql: str) -> list[str]:
    """The single statements of a script (`executescript` would end our transaction)."""
    found: list[str] = []
    pending = ""
    for line in sql.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            found.append(pending)
            pending = ""
    return found


def as_store_error(error: Exception, path: Path | str) -> StoreError:
    """SQLite's error as ours: what is wrong, and what to do."""
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_FULL") or "No space left" in str(error):
        return StoreFull(
            f"no space left for {path}", hint="free some space; what was recorded is safe"
        )
    if name.startswith("SQLITE_CANTOPEN") and _is_forbidden(Path(path)):
        name = "SQLITE_READONLY"
    if name.startswith("SQLITE_READONLY") or isinstance(error, PermissionError):
        return StoreReadOnly(
            f"{path} can't be written", hint="check the owner and mode of the file and its folder"
        )
    if name.startswith("SQLITE_NOTADB"):
        return _no_store(path)
    if name.startswith("SQLITE_CORRUPT"):
        return StoreError(
            f"{path} is damaged: {error}", hint="restore a backup (holdfast store backup makes one)"
        )
    return StoreError(f"{path}: {error}")


def _is_forbidden(path: Path) -> bool:
    """Whether the file, or the folder it would be made in, can't be written by us."""
    return not all(os.access(each, os.W_OK) for each in (path.parent, path) if each.exists())


def _no_store(path: Path | str) -> StoreError:
    return StoreError(f"{path} is no Holdfast store", hint="name another file with HOLDFAST_STORE")
