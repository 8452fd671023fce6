"""Dropping old records of sandboxes, with their commands and attempts to reach the network.

Nothing that still runs is dropped, and nothing of runs or model calls. A few at a time, so that
whoever writes meanwhile waits for a moment only. The file does not shrink: its space is used again.
"""

from __future__ import annotations

import time
from pathlib import Path

from holdfast.store.connection import Connection
from holdfast.store.sandboxes import Dropped
from holdfast.store.sqlite.database import Apart, Database

AT_ONCE = 500

_SANDBOXES = """
SELECT id FROM sandboxes WHERE created_at < :before AND stopped_at < :before
ORDER BY created_at LIMIT :most
"""
_ORPHAN_COMMANDS = """
DELETE FROM commands WHERE id IN (
  SELECT c.id FROM commands c WHERE c.started_at < :before AND c.ended_at < :before
    AND NOT EXISTS (SELECT 1 FROM sandboxes s WHERE s.id = c.sandbox_id) LIMIT :most)
"""
_ORPHAN_ATTEMPTS = """
DELETE FROM egress WHERE id IN (
  SELECT e.id FROM egress e WHERE e.at < :before
    AND NOT EXISTS (SELECT 1 FROM sandboxes s WHERE s.id = e.sandbox_id) LIMIT :most)
"""


def prune_store(path: Path, keep: float, *, most: int = AT_ONCE) -> Dropped:
    """Drop from the store at `path` what ended more than `keep` seconds ago."""
    return prune(Database.open(path), keep, most=most)


def prune(database: Database, keep: float, *, most: int = AT_ONCE) -> Dropped:
    """The same of a database, which is closed then."""
    before, whole = time.time() - keep, Dropped()
    operation = Apart("sandboxes", lambda tx: drop(tx.connection, before, most=most))
    try:
        while True:
            some: Dropped = database.write(operation).result()
            whole += some
            if some == Dropped():
                return whole
    finally:
        database.close()


def drop(connection: Connection, before: float, *, most: int = AT_ONCE) -> Dropped:
    """Drop at most so many of each that ended before this moment; of sandboxes all they have."""
    which = {"before": before, "most": most}
    ids = connection.execute(_SANDBOXES, which).fetchall()
    commands = attempts = 0
    for id in ids:
        commands += connection.execute("DELETE FROM commands WHERE sandbox_id = ?", id).rowcount
        attempts += connection.execute("DELETE FROM egress WHERE sandbox_id = ?", id).rowcount
        connection.execute("DELETE FROM sandboxes WHERE id = ?", id)
    commands += connection.execute(_ORPHAN_COMMANDS, which).rowcount
    attempts += connection.execute(_ORPHAN_ATTEMPTS, which).rowcount
    return Dropped(len(ids), commands, attempts)
