"""What holds a call back: budgets, a provider's rate limit, and the circuit breaker.

Budgets and rates are kept in the store, so that all processes that share it stay within them
together. A provider that keeps failing is left alone for a while; after that one call tries it,
whose success closes the circuit and whose failure opens it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import ROUND_FLOOR
from functools import lru_cache

from holdfast.errors import ProviderUnavailable
from holdfast.gateway.config import Breaker, Budget
from holdfast.gateway.providers import Provider
from holdfast.records.calls import NANO, CallStart, SpendLimit
from holdfast.store.ledger import Ledger, Rate

ABOVE_KEYS = ("user", "team")
"""Whom keys belong to, as tags say it (`team:search`): each has a scope of its own."""


def scopes_of(start: CallStart, budgets: Sequence[Budget]) -> list[str]:
    """Every scope the call counts against: `day:…`, `run:…`, `tag:…`, `key:…`, `team:…`."""
    day = _date(int(start.started_at // 86400))
    scopes = [f"day:{day}"]
    if not (start.run_id or start.workflow or start.tags or start.api_key):
        return scopes
    for kind, name in _named(start):
        scopes.append(f"{kind}:{name}")
        if any(b.per == kind and b.period == "day" and b.name in (None, name) for b in budgets):
            scopes.append(f"{kind}:{name}@{day}")
    return scopes


def limits_of(scopes: Sequence[str], budgets: Sequence[Budget]) -> list[SpendLimit]:
    """The configured limits on these scopes."""
    found: list[SpendLimit] = []
    for budget in budgets:
        for scope in scopes:
            kind, _, rest = scope.partition(":")
            name, dated, _ = rest.partition("@")
            daily = bool(dated) == (budget.period == "day") or kind == "day"
            if kind == budget.per and daily and budget.name in (None, name):
                usd = None
                if budget.usd is not None:
                    usd = int((budget.usd * NANO).to_integral_value(ROUND_FLOOR))
                found.append(SpendLimit(scope, usd, budget.tokens))
    return found


@lru_cache(2)
def _date(days: int) -> str:
    """The date so many days after 1970 began, in UTC."""
    return (date(1970, 1, 1) + timedelta(days)).isoformat()


def _named(start: CallStart) -> list[tuple[str, str]]:
    named: list[tuple[str, str]] = []
    if start.run_id:
        named.append(("run", start.run_id))
    if start.workflow:
        named.append(("workflow", start.workflow))
    for tag in start.tags:
        kind, _, name = tag.partition(":")
        named.append((kind, name) if kind in ABOVE_KEYS and name else ("tag", tag))
    if start.api_key:
        named.append(("key", start.api_key))
    return named


class RateLimit:
    """The rates of one provider."""

    def __init__(self, provider: Provider, ledger: Ledger) -> None:
        self._name, self._ledger = provider.name, ledger
        self._rpm, self._tpm = provider.rpm, provider.tpm
        self.limited = bool(self._rpm or self._tpm)

    def _rates(self, requests: int, tokens: int) -> list[Rate]:
        found: list[Rate] = []
        if self._rpm and requests:
            found.append(Rate(f"{self._name} requests", self._rpm, requests))
        if self._tpm and tokens:
            found.append(Rate(f"{self._name} tokens", self._tpm, tokens))
        return found

    async def turn(self, tokens: int) -> float:
        """Wait for this call's turn; returns the seconds waited."""
        rates = self._rates(1, tokens)
        wait = await self._ledger.take_turn(rates)
        if wait > 0:
            try:
                await asyncio.sleep(wait)
            except asyncio.CancelledError:
                self._ledger.give_back(rates)
                raise
        return wait

    def settle(self, taken: int, used: int) -> None:
        """Give back what was taken in excess of what was used."""
        if taken > used and (rates := self._rates(0, taken - used)):
            self._ledger.give_back(rates)


class Circuit:
    """The state of one provider."""

    def __init__(
        self, provider: str, config: Breaker, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._provider, self._config, self._now = provider, config, now
        self._failures = 0
        self._why = ""
        self._open_until: float | None = None
        self._trying = False

    @property
    def is_open(self) -> bool:
        return self._open_until is not None

    def enter(self) -> None:
        """Raise ProviderUnavailable while the circuit is open; let one call try it after."""
        if self._open_until is None:
            return
        left = self._open_until - self._now()
        if left > 0 or self._trying:
            raise ProviderUnavailable(
                f"{self._provider} failed {self._failures} times in a row and is left alone"
                f" for {max(left, 0):.0f} s more; the last time: {self._why}",
                retry_after=max(left, 0.0),
            )
        self._trying = True

    def succeeded(self) -> None:
        self._failures, self._open_until, self._trying = 0, None, False

    def failed(self, why: str) -> None:
        """The call failed by the provider's fault; `why` is told to those who come after."""
        self._why = why[:300]
        self._failures += 1
        self._trying = False
        if self._failures >= self._config.failures:
            self._open_until = self._now() + self._config.open_for

    def left(self) -> None:
        """The call ended without telling anything of the provider's health."""
        self._trying = False
