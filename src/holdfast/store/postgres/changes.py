"""Change detection on a server: a look whenever somebody told of news, and now and then anyway."""

from __future__ import annotations

import threading
import time

from holdfast.store.inspection import Changes
from holdfast.store.postgres.database import PostgresDatabase
from holdfast.store.postgres.notices import Notices
from holdfast.store.sqlite.changes import State, state_of, touched

LOOK_SECONDS = 1.0
"""Calls and sandboxes tell nobody of themselves; so long until a look finds them."""


class PostgresChangeDetector:
    """Looks at the state of things, and compares it with the one before."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._news = threading.Event()
        self._looked_at = float("-inf")
        self._notices = Notices(database.url, self._news.set) if database.url.listen else None
        self.state: State | None = None
        """As of the last look."""

    def has_changed(self) -> bool:
        return self._news.is_set() or time.monotonic() - self._looked_at >= LOOK_SECONDS

    def look(self) -> Changes:
        """What was touched since the last look; the first finds nothing."""
        self._news.clear()  # first: what is told from here on is another look's
        before = self.state

        def question(connection: object) -> tuple[State, Changes]:
            now = state_of(connection)  # type: ignore[arg-type]
            found = {} if before is None else touched(connection, before, now)  # type: ignore[arg-type]
            return now, found

        self.state, found = self._database.read(question).result()
        self._looked_at = time.monotonic()
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
        if self._notices is not None:
            self._notices.close()
            self._notices = None
