"""The clock everything asks, so that tests and simulations can bring their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Wall-clock seconds since the epoch, and a way to be called at a moment of it."""

    def now(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer: ...


class SystemClock:
    """The machine's clock, on the running event loop."""

    # The wall clock may be set, and the machine may sleep: long waits are looked at again
    # this often, in seconds, rather than trusted to the monotonic clock.
    RECHECK = 30.0

    def now(self) -> float:
        return time.time()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return _WallTimer(self, when, callback)


class _WallTimer:
    def __init__(self, clock: SystemClock, when: float, callback: Callable[[], None]) -> None:
        self._clock, self._when, self._callback = clock, when, callback
        self._loop = asyncio.get_running_loop()
        self._arm()

    def _arm(self) -> None:
        left = self._when - self._clock.now()
        # Never early: the loop's own resolution may round a wait down.
        delay = min(max(left, 0.0), SystemClock.RECHECK)
        self._handle = self._loop.call_later(delay, self._check)

    def _check(self) -> None:
        if self._clock.now() >= self._when:
            self._callback()
        else:
            self._arm()

    def cancel(self) -> None:
        self._handle.cancel()
