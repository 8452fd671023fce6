"""The address of a store in PostgreSQL, as people write it.

    postgresql://user:password@host:5432/database?namespace=billing&listen=false&prepare=false

is what libpq takes, with three settings of ours: `namespace` lets several applications share a
database (each has a schema of its own, `holdfast` or `holdfast_NAMESPACE`), `listen=false` does
without LISTEN, and `prepare=false` without prepared statements, for poolers that can't have them.

A store's name is its address without the password: names are shown and written down. Within a
process a name stands for the address it was made from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from holdfast.errors import UsageError

SCHEMES = ("postgresql", "postgres")
NAMESPACE = re.compile(r"[a-z][a-z0-9_]{0,39}")
OWN = ("namespace", "listen", "prepare")


def is_postgres(name: object) -> bool:
    """Whether a store's name is an address of PostgreSQL."""
    return str(name).partition("://")[0] in SCHEMES and "://" in str(name)


@dataclass(frozen=True)
class PostgresUrl:
    """Where a store is, and how to speak to it."""

    name: str
    """Without its password."""
    conninfo: str = field(repr=False)
    namespace: str = ""
    listen: bool = True
    prepare: bool = True

    _known: ClassVar[dict[str, PostgresUrl]] = {}
    """Those with a password that this process has been given, by name."""

    @property
    def schema(self) -> str:
        return f"holdfast_{self.namespace}" if self.namespace else "holdfast"

    @classmethod
    def parse(cls, text: str) -> PostgresUrl:
        """Read an address; a name stands for the address that was read before."""
        if text in cls._known:
            return cls._known[text]
        parts = urlsplit(text)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        own = {name: query.pop(name, "") for name in OWN}
        if own["namespace"] and NAMESPACE.fullmatch(own["namespace"]) is None:
            raise UsageError(
                f"a store can't have the namespace {own['namespace']!r}",
                hint="use lower-case letters, digits and _, at most 40, with a letter first",
            )
        conninfo = _joined(parts.netloc, parts.path, query)
        shown = {k: v for k, v in query.items() if k not in ("password", "sslpassword")}
        shown |= {name: value for name, value in own.items() if value}
        user, at, host = parts.netloc.rpartition("@")
        found = cls(
            _joined(user.partition(":")[0] + at + host, parts.path, shown),
            conninfo,
            own["namespace"],
            _is_on("listen", own["listen"]),
            _is_on("prepare", own["prepare"]),
        )
        if found.name != text:
            cls._known[found.name] = found
        return found


def _joined(host: str, path: str, query: dict[str, str]) -> str:
    settings = urlencode(query, quote_via=quote, safe="/")
    return f"postgresql://{host}{path}" + (f"?{settings}" if settings else "")


def _is_on(name: str, value: str) -> bool:
    if value in ("", "true", "1", "on"):
        return True
    if value in ("false", "0", "off"):
        return False
    raise UsageError(f"{name} should be true or false in a store's address, not {value!r}")
