"""Requests and tokens per minute: calls wait their turn instead of failing.

A bucket that refills steadily. Whoever comes first goes first; a call larger than a whole
minute's tokens goes when the bucket is full.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

MINUTE = 60.0


class Bucket:
    """`per_minute` units, refilled evenly."""

    def __init__(self, per_minute: int, now: Callable[[], float] = time.monotonic) -> None:
        self._size = float(per_minute)
        self._level = float(per_minute)
        self._now, self._at = now, now()

    def wait(self, amount: float) -> float:
        """Take `amount`, and say how long to wait before using it."""
        now = self._now()
        self._level = min(self._size, self._level + (now - self._at) * self._size / MINUTE)
        self._at = now
        self._level -= min(amount, self._size)
        return max(0.0, -self._level * MINUTE / self._size)

    def give_back(self, amount: float) -> None:
        self._level = min(self._size, self._level + amount)


class Pace:
    """The limits of one provider."""

    def __init__(self, rpm: int | None, tpm: int | None) -> None:
        self._requests = Bucket(rpm) if rpm else None
        self._tokens = Bucket(tpm) if tpm else None
        self.limited = bool(rpm or tpm)

    async def turn(self, tokens: int) -> float:
        """Wait for this call's turn; returns the seconds waited."""
        wait = 0.0
        if self._requests is not None:
            wait = self._requests.wait(1)
        if self._tokens is not None:
            wait = max(wait, self._tokens.wait(tokens))
        if wait > 0:
            try:
                await asyncio.sleep(wait)
            except asyncio.CancelledError:
                self.unused(tokens)
                raise
        return wait

    def unused(self, tokens: int) -> None:
        """Give back what a call took and did not use."""
        if self._requests is not None:
            self._requests.give_back(1)
        if self._tokens is not None:
            self._tokens.give_back(tokens)

    def settle(self, taken: int, used: int) -> None:
        """Give back what was taken in excess of what was used."""
        if self._tokens is not None and taken > used:
            self._tokens.give_back(taken - used)
