"""Model calls, as the ledger keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NamedTuple

CallStatus = Literal["started", "completed", "failed", "interrupted", "unknown"]
NANO = Decimal(1_000_000_000)
"""Money is kept in whole billionths of a US dollar; so many are one."""


@dataclass(frozen=True, slots=True)
class ProviderAttempt:
    """One request to one provider on behalf of a call."""

    provider: str
    model: str
    seconds: float
    status: int | None = None
    """The provider's HTTP status, if it answered."""
    error: str | None = None
    message: str | None = None
    charged: Decimal | None = None
    """What a failed attempt may have cost, at worst, in US dollars."""


class CallStart(NamedTuple):
    """What is known of a call before its first byte is sent.

    A tuple, as the call's end is: both are made for every call, and a frozen dataclass of so many
    fields takes several times as long to make.
    """

    id: str
    model: str
    format: str
    started_at: float
    key: str | None = None
    """A hash of the caller's idempotency key."""
    request_hash: str = ""
    run_id: str | None = None
    workflow: str | None = None
    step: str | None = None
    step_key: str | None = None
    attempt: int | None = None
    api_key: str | None = None
    tags: tuple[str, ...] = ()
    prompt: str | None = None
    """The request as JSON, redacted; None when content is not kept."""


class CallEnd(NamedTuple):
    """How a call ended, and what it used."""

    status: CallStatus
    finished_at: float
    provider: str | None = None
    served: str | None = None
    finish: str | None = None
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False
    cost: int | None = None
    """Nanodollars; None when the price is unknown."""
    charge: int = 0
    """Nanodollars counted against budgets: the cost, and the worst case of what is unclear."""
    charge_tokens: int = 0
    prices: Mapping[str, Any] | None = None
    """The unit prices used, and the version of the data they came from."""
    latency: float = 0.0
    first_token: float | None = None
    attempts: tuple[ProviderAttempt, ...] = ()
    error: str | None = None
    message: str | None = None
    reply: str | None = None
    """The reply as JSON, redacted; None when content is not kept."""
    replay: bytes | None = None
    """The whole reply, sealed, for the same key to get again."""


@dataclass(frozen=True, slots=True)
class Call:
    """A model call as the ledger keeps it."""

    start: CallStart
    status: CallStatus
    end: CallEnd | None = None
    owner: str = ""
    reserved: int = 0
    reserved_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SpendLimit:
    """A hard limit on one scope, such as `run:run_…`, `tag:nightly` or `day:2026-01-31`."""

    scope: str
    usd: int | None = None
    """Nanodollars."""
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Spend:
    """What a scope has spent, and what calls in flight hold of it."""

    scope: str
    usd: int = 0
    tokens: int = 0
    calls: int = 0
    reserved_usd: int = 0
    reserved_tokens: int = 0
    limit: SpendLimit | None = None


@dataclass(frozen=True, slots=True)
class VirtualKey:
    """A key the gateway's HTTP service accepts; only its hash is kept."""

    id: str
    name: str
    hash: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    models: tuple[str, ...] = ()
    """Patterns such as `anthropic/*`; none means every model."""
    run_id: str | None = None
    tags: tuple[str, ...] = field(default=())
