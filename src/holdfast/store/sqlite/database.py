"""One SQLite file within this process: one thread that writes, a few that read.

Group commit: the writer gathers what everybody has to write (journals, calls, sandboxes) into one
transaction. An operation is a function of a `Transaction`. It may refuse by raising a HoldfastError
*before* it writes anything; then it alone fails. Any other error, or one in the middle, rolls the
whole batch back, and its operations are tried one by one, so that the guilty one alone fails.

A batch is as durable as its most demanding member. A durable operation is on disk when it is
reported; the others are committed, which survives the death of the process, and reach the disk
with the next durable commit.

A question is asked on a connection that can only read, in one transaction: it sees the store at one
moment, never waits for a writer and never makes one wait.

All who open the same file in a process share its Database; the last to close it ends its threads.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar, cast

from holdfast.errors import HoldfastError, StoreError
from holdfast.records import Event
from holdfast.store.base import Change
from holdfast.store.connection import Connection, Cursor
from holdfast.store.sqlite import schema

if TYPE_CHECKING:
    from holdfast.store.sqlite.ledger_batch import CallsAhead

T = TypeVar("T")
D = TypeVar("D", bound="Database")

READERS = 3
"""Questions answered at once; a slow one leaves a way for the others."""
MAPPED_BYTES = 1 << 28
MEMORY = ":memory:"

EventRow = tuple[str, int, str, str, float, str, bytes | None, str | None, bytes]

INSERT_EVENT = """
INSERT INTO events (run_id, seq, type, key, at, meta, value, blob, hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
ROWS_AT_ONCE = 32
"""Event rows inserted by one statement, where there are so many. `executemany` lets go of Python's
lock, and waits for it again, once for each row."""
INSERT_EVENTS = INSERT_EVENT.rstrip() + ", (?, ?, ?, ?, ?, ?, ?, ?, ?)" * (ROWS_AT_ONCE - 1)


@dataclass(slots=True)
class Transaction:
    """One batch's view of the database: event rows are gathered and inserted in one go."""

    connection: Connection
    rows: list[EventRow] = field(default_factory=list[EventRow])
    last_seq: dict[str, int] = field(default_factory=dict[str, int])
    """Journal length of the runs appended to in this batch (their rows may not be in yet)."""
    leased: set[str] = field(default_factory=set[str])
    """Workers whose lease was renewed in this batch, and whose row is still there."""
    operations: Sequence[Operation] = ()
    """The whole batch, in order."""
    place: int = 0
    """Which operation of the batch is being carried out."""
    fences: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Fences and journal lengths, looked up for several appends in a row; see `journal`."""
    fences_until: int = 0
    """Up to which place of the batch they hold."""
    absent: set[str] = field(default_factory=set[str])
    """Runs that are known not to be there, looked up for all that the batch creates."""
    left: dict[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]])
    """What there is to do for runs that end, looked up for all of the batch: see `projections`."""
    replaced: list[str] = field(default_factory=list[str])
    """Runs to be cancelled because a new one takes their key; see `creation.existing`."""
    calls: CallsAhead | None = None
    """What was looked up for the model calls of the batch: see `ledger_batch`."""
    ended: dict[str, Event] = field(default_factory=dict[str, Event])
    mail: set[str] = field(default_factory=set[str])
    due: bool = False

    def execute(self, sql: str, parameters: tuple[Any, ...] | Mapping[str, Any] = ()) -> Cursor:
        try:
            return self.connection.execute(sql, parameters)
        except UnicodeEncodeError:
            # Half a surrogate pair, as in an error that names a strange file: SQLite can't hold
            # it, and a run must not hang on it. The journal, in ASCII, has it as it was.
            if isinstance(parameters, Mapping):
                named = {name: _escaped(value) for name, value in parameters.items()}
                return self.connection.execute(sql, named)
            return self.connection.execute(sql, tuple(map(_escaped, parameters)))

    @property
    def gathers(self) -> bool:
        """Whether what is written `later` goes to the database at the end, in few messages: then it
        is worth looking up for a whole batch what its operations would ask one by one."""
        return False

    def later(self, sql: str, parameters: tuple[Any, ...]) -> None:
        """Execute what nothing in the batch depends on; some databases take it all at once."""
        self.execute(sql, parameters)

    def flush(self) -> None:
        """Insert the gathered event rows; operations that read events call this first."""
        rows = self.rows
        if not rows:
            return
        whole = len(rows) - len(rows) % ROWS_AT_ONCE
        for first in range(0, whole, ROWS_AT_ONCE):
            values = tuple(chain.from_iterable(rows[first : first + ROWS_AT_ONCE]))
            self.connection.execute(INSERT_EVENTS, values)
        if whole < len(rows):
            self.connection.executemany(INSERT_EVENT, rows[whole:])
        rows.clear()

    @property
    def written(self) -> int:
        """How many rows this batch has written so far, or gathered to write."""
        return self.connection.total_changes + len(self.rows)

    def change(self) -> Change:
        return Change(frozenset(self.mail), self.ended, self.due)


def _escaped(value: Any) -> Any:
    """Text with `\\udXXX` in place of half characters: what differed still does."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


Operation = Callable[[Transaction], Any]


@dataclass(frozen=True, slots=True)
class Own:
    """An operation of the owner of some runs, which concerns these and no others.

    Databases with many writers lock their rows, and carry out others at the same time.
    """

    runs: Sequence[str]
    run: Operation
    mail: Sequence[int] = ()
    """The runs that these were left for are concerned too."""

    def __call__(self, tx: Transaction) -> Any:
        return self.run(tx)


@dataclass(frozen=True, slots=True)
class Apart:
    """An operation on tables that runs have nothing to do with: it meets only those of its kind."""

    what: Literal["ledger", "sandboxes"]
    run: Operation

    def __call__(self, tx: Transaction) -> Any:
        return self.run(tx)


Done = Callable[[Any, HoldfastError | None], None]
Item = tuple[Operation, Done]
Result = tuple[Done, Any, HoldfastError | None]
Report = Callable[[list[Result], Change], None]


def commit(
    connection: sqlite3.Connection, items: list[Item], path: Path | str
) -> tuple[list[Result], Change]:
    """Carry out the operations in one transaction; if that fails, each in its own."""
    try:
        return _transaction(connection, items)
    except Exception as error:  # noqa: BLE001 - whatever it is, it goes to who submitted it
        if len(items) == 1:
            return [(items[0][1], None, _wrapped(error, path))], Change()
    results: list[Result] = []
    mail: set[str] = set()
    ended: dict[str, Event] = {}
    due = False
    for item in items:
        single, change = commit(connection, [item], path)
        results += single
        mail |= change.mail
        ended |= change.ended
        due |= change.due
    return results, Change(frozenset(mail), ended, due)


def _transaction(connection: sqlite3.Connection, items: list[Item]) -> tuple[list[Result], Change]:
    transaction = Transaction(connection, operations=[operation for operation, _ in items])
    connection.execute("BEGIN IMMEDIATE")
    try:
        results = perform(transaction, items)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return results, transaction.change()


def perform(transaction: Transaction, items: list[Item]) -> list[Result]:
    """Carry out the operations in a transaction that has begun, up to its commit."""
    results: list[Result] = []
    for place, (operation, done) in enumerate(items):
        transaction.place = place
        written = transaction.written
        try:
            results.append((done, operation(transaction), None))
        except HoldfastError as refusal:
            if transaction.written != written:
                raise  # half done must not be committed
            results.append((done, None, refusal))
    transaction.flush()
    return results


def _wrapped(error: Exception, path: Path | str) -> HoldfastError:
    if isinstance(error, HoldfastError):
        return error
    wrapped = schema.as_store_error(error, path)
    wrapped.__cause__ = error
    return wrapped


class _Batch(NamedTuple):
    """What one caller submitted at once, and how to tell it."""

    items: list[Item]
    report: Report
    durable: bool


class _Turn(threading.local):
    """What the event loop of this thread has to write in its present turn."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.pending: list[_Batch] = []


class Database:
    """The file at `path`, opened on first use; `open` gives the one that is shared.

    >>> database = Database.open(path)
    >>> future = database.write(lambda tx: tx.execute(sql, values).rowcount, durable=False)
    >>> count = database.read(lambda connection: connection.execute(sql).fetchone()[0])
    """

    _shared: ClassVar[dict[tuple[int, str], Database]] = {}
    _sharing: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, path: Path | str) -> None:
        self.name = str(path)
        """What to call it in messages."""
        self.path = Path(path)
        self.in_memory = self.name == MEMORY
        self._users = 1
        self._closed = False
        self._queue: SimpleQueue[list[_Batch] | None] = SimpleQueue()
        self._turn = _Turn()
        self._connection: sqlite3.Connection | None = None
        self._full = True
        """Whether commits wait for the disk; `schema.connect` says so."""
        self._own = threading.local()
        self._reading: list[sqlite3.Connection] = []
        self._readers: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="holdfast-writer", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, path: Path | str) -> Database:
        """The Database of this file in this process; nothing is touched before it is used."""
        if str(path) == MEMORY:
            return cls(path)
        return cls._share(os.path.realpath(path), lambda: cls(path))

    @classmethod
    def _share(cls, name: str, make: Callable[[], D]) -> D:
        """The one of this name, made if there is none."""
        # By process: a forked child has none of its parent's threads.
        key = (os.getpid(), name)
        with cls._sharing:
            found = cls._shared.get(key)
            if found is None:
                found = cls._shared[key] = make()
            else:
                found._users += 1
            return cast("D", found)

    def close(self) -> None:
        """Let go of it. The last to do so waits until everything is written and nothing is open."""
        self._end_turn()
        with self._sharing:
            self._users -= 1
            if self._users:
                return
            self._closed = True
            for key in [key for key, database in self._shared.items() if database is self]:
                del self._shared[key]
        self._queue.put(None)
        self._thread.join()
        if self._readers is not None:
            self._readers.shutdown()
        self._disconnect()

    def _disconnect(self) -> None:
        """Close the connections, which nobody uses any more."""
        # The writer's connection last: it moves the log into the file.
        for connection in self._reading:
            connection.close()
        if self._connection is not None:
            self._connection.close()

    # ------------------------------------------------------------------------- writing

    def write(self, operation: Callable[[Transaction], T], *, durable: bool = True) -> Future[T]:
        """What the operation gives, once it is committed; usable from any thread."""
        future: Future[T] = Future()

        def done(value: T, error: HoldfastError | None) -> None:
            if not future.set_running_or_notify_cancel():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)

        self.submit([(operation, done)], _tell, durable=durable)
        return future

    def submit(self, items: list[Item], report: Report, *, durable: bool = True) -> None:
        """Have these carried out, in order, in one batch.

        `report` is called by the writer's thread, for each caller in the order they came: with no
        items it says that everything submitted before is done.
        """
        if self._closed:
            raise StoreError(f"{self.name} is closed")
        self._end_turn()  # the order is kept
        self._queue.put([_Batch(items, report, durable)])

    def submit_soon(self, items: list[Item], report: Report, *, durable: bool = True) -> None:
        """The same at the end of this turn of the running event loop.

        Whatever else the turn brings comes along: a writer that is woken by the first of many
        commits that one alone, and the others wait for the disk twice.
        """
        if self._closed:
            raise StoreError(f"{self.name} is closed")
        loop, turn = asyncio.get_running_loop(), self._turn
        if turn.loop is not loop:
            self._end_turn()
            turn.loop = loop
        if not turn.pending:
            loop.call_soon(self._end_turn)
        last = turn.pending[-1] if turn.pending else None
        if last is not None and last.report == report and last.durable == durable:
            last.items.extend(items)  # the same caller: told of all of them at once
        else:
            turn.pending.append(_Batch(items, report, durable))

    def _end_turn(self) -> None:
        if self._turn.pending:
            self._queue.put(self._turn.pending)
            self._turn.pending = []

    def _work(self) -> None:
        stopping = False
        while not stopping:
            turns = [self._queue.get()]
            while not self._queue.empty():
                turns.append(self._queue.get())
            stopping = None in turns
            waiting = [batch for turn in turns if turn for batch in turn]
            if waiting:
                self._commit(waiting)

    def _commit(self, batches: list[_Batch]) -> None:
        items = [item for batch in batches for item in batch.items]
        durable = any(batch.durable for batch in batches)
        results, change = self._carry_out(items, durable=durable)
        place = 0
        for batch in batches:
            end = place + len(batch.items)
            batch.report(results[place:end], change)
            place = end

    def _carry_out(self, items: list[Item], *, durable: bool) -> tuple[list[Result], Change]:
        """What became of the operations of a batch; in the writer's thread."""
        try:
            connection = self._ready(durable=durable)
        except (HoldfastError, sqlite3.Error) as error:
            return [(done, None, _wrapped(error, self.path)) for _, done in items], Change()
        return commit(connection, items, self.path) if items else ([], Change())

    def _ready(self, *, durable: bool) -> sqlite3.Connection:
        """The connection that writes, made and migrated if need be."""
        if self._connection is None:
            self._connection = schema.connect(self.path)
        if durable != self._full:
            # NORMAL does not wait for the disk; the next FULL commit brings all before it there.
            level = "FULL" if durable else "NORMAL"
            self._connection.execute(f"PRAGMA synchronous = {level}")
            self._full = durable
        return self._connection

    # ------------------------------------------------------------------------- reading

    def read(self, question: Callable[[Connection], T], *, lenient: bool = False) -> Future[T]:
        """The answer to a question, asked in a thread, in one read transaction.

        `lenient`: text that is damaged is given as far as it can be read, rather than refused.
        """
        if self.in_memory:  # there is one connection
            return self.write(lambda tx: question(tx.connection), durable=False)
        with self._lock:
            if self._closed:
                raise StoreError(f"{self.name} is closed")
            if self._readers is None:
                self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="holdfast-reader")
            return self._readers.submit(self._ask, question, lenient)

    def _ask(self, question: Callable[[Connection], T], lenient: bool) -> T:
        try:
            connection = self._reader()
            connection.text_factory = damaged_text if lenient else str
            connection.execute("BEGIN")
            try:
                return question(connection)
            finally:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise schema.as_store_error(error, self.path) from error

    def _reader(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if found is None:
            found = self._own.connection = open_to_read(self.path)
            with self._lock:
                self._reading.append(found)
        return found


def _tell(results: list[Result], _change: Change) -> None:
    for done, value, error in results:
        done(value, error)


def nothing(_tx: Transaction) -> None:
    """An operation to wait for: the file is there, and can be written."""


def open_to_read(path: Path) -> sqlite3.Connection:
    """A connection that can only read, to a file that exists."""
    if not path.exists():
        raise StoreError(f"there is no store at {path}")
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode=ro",
        uri=True,
        timeout=schema.BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.execute(f"PRAGMA mmap_size = {MAPPED_BYTES}")
    return connection


def damaged_text(data: bytes) -> str:
    """Text as far as it can be read."""
    return data.decode(errors="replace")
