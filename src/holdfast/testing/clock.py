"""Clocks that stand still until they are told to go on."""

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

    boot = "the only one"

    def __init__(self, start: float = START) -> None:
        self._now = start
        self._offset = 0.0
        """By how much the wall clock was set, all in all."""
        self._order = 0
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._steady_timers: list[tuple[float, int, VirtualTimer]] = []

    def now(self) -> float:
        return self._now

    def steady(self) -> float:
        return self._now - self._offset

    def set(self, moment: float) -> None:
        """Set the wall clock, as people and NTP do: no time passes."""
        self._offset += moment - self._now
        self._now = moment

    def call_at(self, when: float, callback: Callable[[], None]) -> VirtualTimer:
        return self._push(self._timers, when, callback)

    def call_after(self, seconds: float, callback: Callable[[], None]) -> VirtualTimer:
        return self._push(self._steady_timers, self.steady() + seconds, callback)

    def _push(
        self,
        timers: list[tuple[float, int, VirtualTimer]],
        when: float,
        callback: Callable[[], None],
    ) -> VirtualTimer:
        timer = VirtualTimer(when, callback)
        self._order += 1
        heapq.heappush(timers, (when, self._order, timer))
        return timer

    def next(self) -> float | None:
        """The moment of the next timer, on the wall clock."""
        first = self._first()
        return None if first is None else first[0]

    def _first(self) -> tuple[float, list[tuple[float, int, VirtualTimer]]] | None:
        found: list[tuple[float, int, list[tuple[float, int, VirtualTimer]]]] = []
        for timers, ahead in ((self._timers, 0.0), (self._steady_timers, self._offset)):
            while timers and timers[0][2].callback is None:
                heapq.heappop(timers)
            if timers:
                found.append((timers[0][0] + ahead, timers[0][1], timers))
        if not found:
            return None
        moment, _, timers = min(found, key=lambda each: each[:2])
        return moment, timers

    def advance(self, moment: float) -> None:
        """Let time pass, and the timers due by then ring, in order."""
        while (first := self._first()) is not None and first[0] <= moment:
            self._now = max(self._now, first[0])
            timer = heapq.heappop(first[1])[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self._now = max(self._now, moment)
