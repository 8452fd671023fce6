"""Change detection: what changed in the store that is not in the log of events.

Model calls, sandboxes, commands and attempts to reach the network begin and end without an event;
so do workers, and approvals are decided by people. `look` says of which runs, since the last look.
It costs some microseconds while nobody writes, however large the store: SQLite tells each
connection whether another has committed. After a commit it reads what is under way and what is
new, by indexes that hold just these; so it costs neither by the run nor by what is long past.

A `mark` stands for the state at one moment. Two that are equal say that nothing was missed between.
"""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.store.connection import Connection
from holdfast.store.inspection import CHANGE_KINDS, Changes
from holdfast.store.sqlite.database import damaged_text, open_to_read
from holdfast.store.sqlite.schema import as_store_error


class Kind(NamedTuple):
    """A kind of record, and how to ask for it."""

    name: str
    newest: str | None
    """The highest row number, or id; None where rows are there just while they are under way."""
    begun: str | None
    """Those with a higher one: (run_id)."""
    open: str | None
    """Those under way: (key, run_id)."""


KINDS = (
    Kind(
        "calls",
        "SELECT coalesce(max(rowid), 0) FROM calls",
        "SELECT run_id FROM calls WHERE rowid > ?",
        "SELECT id, run_id FROM calls INDEXED BY calls_in_flight WHERE status = 'started'",
    ),
    Kind(
        "sandboxes",
        "SELECT coalesce(max(rowid), 0) FROM sandboxes",
        "SELECT run_id FROM sandboxes WHERE rowid > ?",
        "SELECT id, run_id FROM sandboxes INDEXED BY sandboxes_live WHERE stopped_at IS NULL",
    ),
    Kind(
        "commands",
        "SELECT coalesce(max(rowid), 0) FROM commands",
        "SELECT run_id FROM commands WHERE rowid > ?",
        "SELECT id, run_id FROM commands INDEXED BY commands_running WHERE ended_at IS NULL",
    ),
    Kind(
        "egress",
        "SELECT coalesce(max(id), 0) FROM egress",
        "SELECT run_id FROM egress WHERE id > ?",
        None,
    ),
    Kind(
        "approvals",
        "SELECT coalesce(max(id), '') FROM approvals",
        "SELECT run_id FROM approvals WHERE id > ?",
        "SELECT id, run_id FROM approvals INDEXED BY approvals_by_status WHERE status = 'pending'",
    ),
    Kind("workers", None, None, "SELECT id, NULL FROM workers"),
)
VERSION = "PRAGMA data_version"
DOINGS = ("calls", "sandboxes", "commands")


@dataclass(frozen=True)
class State:
    """What is under way at one moment, and how far the records go, by kind."""

    newest: dict[str, Any] = field(default_factory=dict[str, Any])
    open: dict[str, dict[str, str | None]] = field(default_factory=dict[str, dict[str, str | None]])

    @property
    def mark(self) -> str:
        """A short text that is another whenever the state is."""
        told = repr([(self.newest[name], sorted(self.open[name])) for name in CHANGE_KINDS])
        return hashlib.blake2b(told.encode(), digest_size=8).hexdigest()

    def has_open(self, run_id: str) -> bool:
        """Whether a call, a sandbox or a command of a run is under way."""
        return any(run_id in self.open[name].values() for name in DOINGS)


def state_of(connection: Connection) -> State:
    """The state at this moment; ask it in a transaction."""
    state = State()
    for kind in KINDS:
        newest = 0 if kind.newest is None else connection.execute(kind.newest).fetchone()[0]
        state.newest[kind.name] = newest
        state.open[kind.name] = {} if kind.open is None else dict(connection.execute(kind.open))
    return state


def mark(connection: Connection) -> str:
    """What stands for the state at this moment."""
    return state_of(connection).mark


def touched(connection: Connection, before: State, now: State) -> Changes:
    """What began or ended between two states, the second being that of this transaction."""
    found: Changes = {}
    for kind in KINDS:
        name, since = kind.name, before.newest[kind.name]
        runs: set[str | None] = set()
        if kind.begun is not None and now.newest[name] != since:
            # Numbers only go down if rows were taken away, or given new ones by VACUUM.
            first = since if now.newest[name] > since else type(since)()
            runs |= {row[0] for row in connection.execute(kind.begun, (first,))}
        for one, other in ((before, now), (now, before)):
            gone = one.open[name].keys() - other.open[name].keys()
            runs |= {one.open[name][key] for key in gone}
        if runs:
            found[name] = runs
    return found


class SqliteChangeDetector:
    """Looks, on a connection that nobody else uses."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._version = -1
        self.state: State | None = None
        """As of the last look."""

    def has_changed(self) -> bool:
        """Whether a look may find something. Takes microseconds and never waits: no thread's
        business."""
        if self._connection is None or self.state is None:
            return True
        try:
            return self._connection.execute(VERSION).fetchone()[0] != self._version
        except sqlite3.OperationalError:
            return True  # locked for a moment; the look says what is wrong, if it lasts

    def look(self) -> Changes:
        """What was touched since the last look; the first finds nothing."""
        try:
            return self._look()
        except sqlite3.Error as error:
            raise as_store_error(error, self._path) from error

    def _look(self) -> Changes:
        if self._connection is None:
            self._connection = open_to_read(self._path)
            self._connection.text_factory = damaged_text
            self._connection.execute("PRAGMA busy_timeout = 0")
        connection = self._connection
        version = connection.execute(VERSION).fetchone()[0]
        if version == self._version and self.state is not None:
            return {}
        connection.execute("BEGIN")
        try:
            now = state_of(connection)
            found = {} if self.state is None else touched(connection, self.state, now)
        finally:
            connection.execute("ROLLBACK")
        # Asked before the state: a commit in between is looked at twice, never missed.
        self.state, self._version = now, version
        return found

    def mark(self) -> str:
        """What stands for the state as of the last look."""
        assert self.state is not None, "nobody has looked"
        return self.state.mark

    def has_open(self, run_id: str) -> bool:
        """Whether a call, a sandbox or a command of a run was under way at the last look."""
        assert self.state is not None, "nobody has looked"
        return self.state.has_open(run_id)

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
