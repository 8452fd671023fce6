"""Opening a store by its name: the one place above the kinds of stores that knows them.

A name is the path of a SQLite file, or an address of PostgreSQL (`store/postgres/url.py`).
`:memory:` keeps a ledger in this process alone.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import StoreError
from holdfast.store.base import Store
from holdfast.store.health import Health
from holdfast.store.inspection import Inspection
from holdfast.store.ledger import KEPT_SECONDS, Ledger
from holdfast.store.parts import StoreParts
from holdfast.store.postgres.url import PostgresUrl, is_postgres
from holdfast.store.sandboxes import Dropped, SandboxRecords, SandboxWriter
from holdfast.store.sqlite import health
from holdfast.store.sqlite.parts import SqliteParts

Name = str | Path


def absolute(name: Name) -> str:
    """The store's name in full, the same in whatever folder this process goes on to work."""
    return str(name) if is_postgres(name) else str(Path(name).absolute())


def shown(name: Name) -> str:
    """The name as it may be shown: it opens the same store in this process, without a password."""
    return PostgresUrl.parse(str(name)).name if is_postgres(name) else str(name)


def is_same(one: Name, other: Name) -> bool:
    """Whether two names are of one store."""
    if is_postgres(one) or is_postgres(other):
        return one == other
    return Path(one).resolve() == Path(other).resolve()


def exists(name: Name) -> bool:
    """Whether there is such a store already; opening one that is not there makes it."""
    if not is_postgres(name):
        return Path(name).exists()
    health = examine(name)
    if health.problem is not None:
        raise health.problem
    return health.exists


def parts(name: Name) -> StoreParts:
    """The store of this name, of whichever kind it is."""
    if is_postgres(name):
        return _postgres(str(name))
    return SqliteParts(Path(name))


def _postgres(name: str) -> StoreParts:
    try:
        from holdfast.store.postgres.parts import PostgresParts  # not everybody has its driver
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "psycopg":
            raise
        raise StoreError(
            "a store in PostgreSQL needs its driver", hint="pip install 'psycopg[binary]'"
        ) from missing
    return PostgresParts(PostgresUrl.parse(name))


def runs(name: Name, process: str) -> Store:
    """The runs of a store, to be opened; `process` identifies who opens it among the others."""
    return parts(name).runs(process)


def ledger(name: Name, *, replays_for: float = KEPT_SECONDS) -> Ledger:
    """Its model calls, spend, limits and keys; to be closed."""
    return parts(name).ledger(replays_for=replays_for)


def sandbox_records(name: Name) -> SandboxRecords:
    """Its sandboxes, for those who look; to be closed."""
    return parts(name).sandbox_records()


def sandbox_writer(name: Name, *, keep: float | None = None) -> SandboxWriter:
    """What this process's sandboxes do, on its way there; what is older than `keep` is dropped."""
    return parts(name).sandbox_writer(keep=keep)


def inspection(name: Name) -> Inspection:
    """Everything for those who look; the store has to exist. To be closed."""
    return parts(name).inspection()


def examine(name: Name) -> Health:
    """What can be said of a store without opening it for work."""
    return parts(name).examine()


def software() -> tuple[str, str, bool]:
    """What keeps stores here, its version, and whether that is new enough."""
    return health.software()


def prune_sandboxes(name: Name, keep: float) -> Dropped:
    """Drop the records of sandboxes that ended more than `keep` seconds ago."""
    return parts(name).prune_sandboxes(keep)
