"""Who makes calls and has sandboxes, on many machines: each process holds a lease.

It is renewed by a thread of the database, by the database's clock. A process that ended on this
machine is told at once, by its number. After the server itself was gone for a while nobody is
taken for dead until all had time to renew.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

from holdfast.clock import boot_id
from holdfast.errors import HoldfastError
from holdfast.ids import new_id
from holdfast.store.connection import Connection
from holdfast.store.postgres.database import PostgresDatabase
from holdfast.store.sqlite.database import Own, Transaction

LEASE_SECONDS = 15.0
RENEW_SECONDS = 4.0

HOLD = """
INSERT INTO owner_leases (id, place, pid, until)
VALUES (?, ?, ?, extract(epoch FROM clock_timestamp())::double precision + ?)
ON CONFLICT (id) DO UPDATE SET until = excluded.until
"""
FOUND = """
SELECT place, pid, greatest(until, extract(epoch FROM pg_postmaster_start_time()) + ?)
  < extract(epoch FROM clock_timestamp())
FROM owner_leases WHERE id = ?
"""


def place() -> str:
    """This machine since its boot, and which of its processes can be seen from here."""
    try:
        return f"{boot_id()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        # One that nobody has waited for yet has ended, too.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return True


class OwnerLeases:
    """The owners on a store, by their leases."""

    def is_dead(self, connection: Connection, owner: str) -> bool:
        found = connection.execute(FOUND, (LEASE_SECONDS, owner)).fetchone()
        if found is None:
            return True
        where, pid, over = found
        return bool(over) or (where != "" and where == place() and not _is_running(pid))

    def forget(self, connection: Connection, owner: str) -> None:
        connection.execute("DELETE FROM owner_leases WHERE id = ?", (owner,))


class LeasedOwner(OwnerLeases):
    """This process's claim to its calls, or to its sandboxes."""

    def __init__(self, database: PostgresDatabase) -> None:
        self.id = new_id("own")
        self._database = database
        self._closing = threading.Event()
        self._held = False
        self._thread = threading.Thread(target=self._renew, name="holdfast-owner", daemon=True)

    def hold(self, connection: Connection) -> None:
        connection.execute(HOLD, (self.id, place(), os.getpid(), LEASE_SECONDS))
        if not self._held:
            self._held = True
            self._thread.start()

    def is_dead(self, connection: Connection, owner: str) -> bool:
        return owner != self.id and super().is_dead(connection, owner)

    def _renew(self) -> None:
        def again(tx: Transaction) -> None:
            self.hold(tx.connection)

        while not self._closing.wait(RENEW_SECONDS):
            try:
                self._database.write(Own((), again), durable=False).result()
            except HoldfastError:
                continue  # the server is gone: who comes back renews first of all

    def close(self) -> None:
        """Let go of the lease; before the database is closed."""
        self._closing.set()
        if self._held:
            self._thread.join()
            with suppress(HoldfastError):  # then it ends by itself
                forgetting = Own((), lambda tx: self.forget(tx.connection, self.id))
                self._database.write(forgetting).result()
