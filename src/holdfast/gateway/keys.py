"""Virtual keys: what clients of the HTTP service hold instead of providers' keys.

A key is shown once, when it is made; only its hash is kept. It can be scoped to models, to an
expiry, to a run, and has a budget scope of its own (`key:…`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Decimal
from fnmatch import fnmatchcase

from holdfast.durations import Duration, seconds
from holdfast.errors import KeyRefused
from holdfast.ids import new_id, new_token
from holdfast.records.calls import NANO, SpendLimit, VirtualKey
from holdfast.store.ledger import Ledger

PREFIX = "hf_gw_"
_FRESH = 1.0  # seconds a key is believed without asking the store again


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key just made: its record, and the secret, shown this once."""

    key: VirtualKey
    secret: str


def hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


async def create_key(
    ledger: Ledger,
    *,
    name: str = "",
    models: Sequence[str] = (),
    expires_in: Duration | None = None,
    usd: Decimal | None = None,
    tokens: int | None = None,
    run_id: str | None = None,
    tags: Sequence[str] = (),
    user: str | None = None,
    team: str | None = None,
) -> NewKey:
    """Make a key; `models` are patterns such as `anthropic/*`, none means every model.

    What it spends counts against its `user` and `team` as well, who may have budgets of their own.
    """
    owners = [f"{kind}:{name}" for kind, name in (("user", user), ("team", team)) if name]
    secret, now = PREFIX + new_token(), time.time()
    key = VirtualKey(
        id=new_id("key"),
        name=name,
        hash=hash_secret(secret),
        created_at=now,
        expires_at=None if expires_in is None else now + seconds(expires_in),
        models=tuple(models),
        run_id=run_id,
        tags=(*tags, *owners),
    )
    await ledger.add_key(key)
    if usd is not None or tokens is not None:
        nano = None if usd is None else int((usd * NANO).to_integral_value(ROUND_FLOOR))
        await ledger.set_limit(SpendLimit(f"key:{key.id}", nano, tokens))
    return NewKey(key, secret)


def allows(key: VirtualKey, *names: str) -> bool:
    """Whether the key may be used for a model known by any of these names."""
    return not key.models or any(
        fnmatchcase(name, pattern) for name in names for pattern in key.models
    )


class KeyRing:
    """Looks keys up, and remembers them for a second."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: dict[str, tuple[float, VirtualKey]] = {}

    async def check(self, secret: str) -> VirtualKey:
        """The key behind a secret; raises KeyRefused."""
        if not secret:
            raise KeyRefused("no key was given", hint="send it as api_key; holdfast keys create")
        hashed = hash_secret(secret)
        known = self._known.get(hashed)
        now = time.monotonic()
        if known is None or now - known[0] > _FRESH:
            found = await self._ledger.find_key(hashed)
            if found is None:
                self._known.pop(hashed, None)
                raise KeyRefused("this key is not known here", hint="holdfast keys create")
            known = (now, found)
            if len(self._known) > 10_000:
                self._known.clear()
            self._known[hashed] = known
        key = known[1]
        if key.revoked_at is not None:
            raise KeyRefused(f"key {key.id} was revoked")
        if key.expires_at is not None and key.expires_at <= time.time():
            raise KeyRefused(f"key {key.id} has expired", hint="make a new one")
        return key


def public(key: VirtualKey) -> VirtualKey:
    """The key's record without its hash, to be shown."""
    return replace(key, hash="")
