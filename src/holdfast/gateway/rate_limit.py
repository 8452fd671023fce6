"""Requests and tokens per minute: calls wait their turn instead of failing.

The rates are kept in the store, so that all processes that share it stay within them together.
Whoever comes first goes first; a call larger than a whole minute's tokens counts as a minute's.
"""

from __future__ import annotations

import asyncio

from holdfast.gateway.ledger import Ledger
from holdfast.gateway.providers import Provider
from holdfast.store.sqlite.ledger_rates import Rate


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
