"""The database's clock: the one that all machines on a store agree on.

It is read now and then; between two readings this machine's steady clock goes on from it, so that
nobody who sets a clock changes when a lease ends or a run is due.
"""

from __future__ import annotations

import time

from holdfast.clock import SystemClock
from holdfast.store.connection import Connection

READ = "SELECT extract(epoch FROM clock_timestamp())::double precision"


class DatabaseClock(SystemClock):
    """Both clocks are the database's; until it is read, the wall clock of this machine."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead: float | None = None
        """What this machine's steady clock lacks of the database's time."""

    def read(self, connection: Connection) -> None:
        """Ask the database what time it is."""
        before = time.monotonic()
        (now,) = connection.execute(READ).fetchone()
        self._ahead = now - (before + time.monotonic()) / 2

    def now(self) -> float:
        return time.time() if self._ahead is None else time.monotonic() + self._ahead

    def steady(self) -> float:
        return self.now()

    @property
    def boot(self) -> str:
        """The same for all machines: what the database's clock counts from does not change."""
        return "database"
