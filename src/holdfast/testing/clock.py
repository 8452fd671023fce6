"""A clock that stands still until it is told to go on."""

from __future__ import annotations

import heapq
from collections.abc import Callable

START = 1_750_000_000.0
"""Some moment in 2025: tests should not depend on today."""


class VirtualTimer:
    """A callback that waits for its moment."""

    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualClock:
    """Time as a test wants it."""

    def __init__(self, start: float = START) -> None:
        self._now = start
        self._order = 0
        self._timers: list[tuple[float, int, VirtualTimer]] = []

    def now(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> VirtualTimer:
        timer = VirtualTimer(when, callback)
        self._order += 1
        heapq.heappush(self._timers, (when, self._order, timer))
        return timer

    def next(self) -> float | None:
        """The moment of the next timer."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def advance(self, moment: float) -> None:
        """Let time pass, and the timers due by then ring, in order."""
        while (first := self.next()) is not None and first <= moment:
            self._now = max(self._now, first)
            timer = heapq.heappop(self._timers)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self._now = max(self._now, moment)
