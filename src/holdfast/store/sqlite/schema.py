"""Opening the SQLite file: its settings, and its schema brought up to date.

The schema is the numbered files in `sql/`, applied in order, each in one transaction with its
number (SQLite's `user_version`). It only goes forward: a program that meets a higher number than
its own refuses by name rather than guess.

Any number of processes may open a store at once, also one that is not there yet or has to be
migrated: one of them does the work, under a lock on a file beside the store, and the others wait.
The kernel drops the lock however its holder ends, and what it left half done is done again.

What was committed last is in the write-ahead log, and without it the file opens as an older one.
So a number that grows while the store is used is kept both in the store and in a small file beside
it: a store whose number is the lower one has lost something, and is refused.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path

from holdfast.errors import SchemaTooNew, StoreError, StoreFull, StoreReadOnly
from holdfast.store.connection import Connection

BUSY_SECONDS = 10.0
PREPARE_SECONDS = 600.0
"""How long to wait for another process to make or migrate the store: a large one takes a while."""
AGAIN_SECONDS = 0.01


@cache
def migrations() -> list[tuple[int, str, str]]:
    """Number, name and SQL of each migration, in order."""
    files = sorted((Path(__file__).parent / "sql").glob("*.sql"))
    return [(int(f.name[:4]), f.name, f.read_text(encoding="utf-8")) for f in files]


def connect(path: Path) -> sqlite3.Connection:
    """Open the database at `path`, made and migrated if need be; for use from one thread."""
    try:
        if str(path) == ":memory:":
            connection = _open(path)
            migrate(connection, str(path))
            return connection
        connection = _open_ready(path)
        if connection is not None:
            return connection
        path.parent.mkdir(parents=True, exist_ok=True)
        with _preparing(path):
            return _prepare(path)
    except (sqlite3.Error, OSError) as error:
        raise as_store_error(error, path) from error


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        # FULL, not NORMAL: in WAL mode NORMAL loses acknowledged commits at a power cut.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA temp_store = MEMORY")
    except BaseException:
        connection.close()
        raise
    return connection


def _open_ready(path: Path) -> sqlite3.Connection | None:
    """The store, if it is there and needs nothing done: the way of all but the first."""
    if not path.exists():
        return None
    connection = _open(path)
    try:
        version = _version(connection)
        _refuse_newer(version, path)
        if version == migrations()[-1][0] and _journal_mode(connection) == "wal":
            _refuse_older(connection, path)
            return connection
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


def _prepare(path: Path) -> sqlite3.Connection:
    """Make the store, or bring it up to date; nobody else does so at the same time."""
    make_private(path)
    connection = _open(path)
    try:
        _refuse_foreign(connection, path)
        _keep_a_log(connection, path)
        migrate(connection, path)
        _refuse_older(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def mark_file(path: Path) -> Path:
    """Where the number is kept that a store must have reached."""
    real = path.resolve()
    return real.with_name(real.name + ".mark")


def advance_mark(connection: Connection) -> str:
    """Count on in the store; once that is committed, `keep_mark` may say so beside it."""
    sql = "UPDATE identity SET mark = mark + 1 RETURNING id, mark"
    [(identity, mark)] = connection.execute(sql).fetchall()
    return f"{identity} {mark}\n"


def keep_mark(path: Path, mark: str) -> None:
    """Write down beside the store how far it has come. If it can't be, less is noticed later."""
    file = mark_file(path)
    new = file.with_name(f"{file.name}.{os.getpid()}")
    with suppress(OSError):
        new.write_text(mark)
        new.replace(file)


def _refuse_older(connection: sqlite3.Connection, path: Path) -> None:
    file = mark_file(path)
    try:
        known, reached = file.read_text().split()
    except (OSError, ValueError):
        return  # there is none, or it was cut short by a power failure
    identity, mark = connection.execute("SELECT id, mark FROM identity").fetchone()
    if identity == known and mark < int(reached):
        raise StoreError(
            f"{path} is older than it was: its write-ahead log ({path.name}-wal) was deleted, or "
            "an older copy was put in its place",
            hint="put the log back, or restore a backup made by holdfast store backup; to go on "
            f"with the file as it is and lose what came later, delete {file}",
        )


@contextmanager
def _preparing(path: Path) -> Generator[None]:
    """Be the only one who makes or migrates this store."""
    # Beside the file itself, not beside a link to it: that is where SQLite keeps its own.
    real = path.resolve()
    name = real.with_name(real.name + ".lock")
    deadline = time.monotonic() + PREPARE_SECONDS
    lock = os.open(name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StoreError(
                        f"{path} has been made or migrated by another process for "
                        f"{PREPARE_SECONDS:g} s",
                        hint=f"see who holds {name} (fuser, lsof), and whether it gets on",
                    ) from None
                time.sleep(AGAIN_SECONDS)
        yield
    finally:
        os.close(lock)  # and with it the lock; the file stays, for whoever waits on it


def _keep_a_log(connection: sqlite3.Connection, path: Path) -> None:
    """Turn on write-ahead logging, which the file remembers.

    SQLite does not always wait here: of two who begin at the same moment it refuses one at
    once, whatever its timeout. So the waiting is done by us.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    connection.execute("PRAGMA busy_timeout = 0")
    while (mode := _begin_log(connection)) is None:
        if time.monotonic() > deadline:
            raise StoreError(
                f"{path} is in use by a program that does not let go of it",
                hint="it has the file open in a transaction (fuser, lsof): end that one first",
            )
        time.sleep(AGAIN_SECONDS)
    connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
    if mode != "wal":
        raise StoreError(
            f"{path} can't have a write-ahead log: SQLite keeps to {mode!r}",
            hint="put it on a local disk: network file systems have no shared memory",
        )


def _begin_log(connection: sqlite3.Connection) -> str | None:
    """The mode the file is in now; None if somebody is in the way."""
    try:
        with closing(connection.execute("PRAGMA journal_mode = WAL")) as cursor:
            return str(cursor.fetchone()[0])
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname.startswith("SQLITE_BUSY"):
            return None
        raise


def _journal_mode(connection: sqlite3.Connection) -> str:
    with closing(connection.execute("PRAGMA journal_mode")) as cursor:
        return str(cursor.fetchone()[0])


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
        version = _refuse_foreign(connection, path)
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
    if isinstance(path, Path):
        # The tables into the file itself: without its log it is then still known as a store.
        connection.execute("PRAGMA wal_checkpoint(FULL)").fetchall()


def _refuse_foreign(connection: sqlite3.Connection, path: Path | str) -> int:
    """The version of the schema, 0 for an empty file; refuses what is not ours to change."""
    version = _version(connection)
    _refuse_newer(version, path)
    if version == 0 and connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
        raise _no_store(path)
    return version


def _refuse_newer(version: int, path: Path | str) -> None:
    newest = migrations()[-1][0]
    if version > newest:
        raise SchemaTooNew(
            f"{path} has schema {version}; this program knows up to {newest}",
            hint="it was written by a newer Holdfast: upgrade this one, or use another file",
        )


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


def vacuum(path: Path) -> int:
    """Write the file anew without what is unused; how many bytes smaller it is."""
    before = path.stat().st_size
    try:
        connection = _open(path)
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise as_store_error(error, path) from error
    return max(before - path.stat().st_size, 0)


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
