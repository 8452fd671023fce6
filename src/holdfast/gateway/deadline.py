"""A time limit that is moved often: `asyncio.timeout`, without a new timer for each move.

The timer goes off now and then, looks whether the limit is reached, and is set again if it is
not: moving the limit costs nothing, unless it is nearer than the next look. What is told apart is
the same as there: the limit's cancellation and anybody else's.
"""

from __future__ import annotations

import asyncio

_LOOK = 20.0


class Deadline:
    """Cancels the current task when the limit is reached, until `close`."""

    __slots__ = ("_before", "_expired", "_limit", "_loop", "_task", "_timer")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._loop, self._task, self._before = task.get_loop(), task, task.cancelling()
        self._timer: asyncio.TimerHandle | None = None
        self._limit = 0.0
        self._expired = False

    def until(self, limit: float) -> None:
        """The limit from now on, by the loop's clock."""
        self._limit = limit
        timer = self._timer
        if timer is None or timer.when() > limit:
            if timer is not None:
                timer.cancel()
            self._set()

    def _set(self) -> None:
        self._timer = self._loop.call_at(min(self._limit, self._loop.time() + _LOOK), self._ring)

    def _ring(self) -> None:
        if self._loop.time() < self._limit:
            self._set()
        else:
            self._timer, self._expired = None, True
            self._task.cancel()

    def close(self, kind: type[BaseException] | None) -> bool:
        """Take the limit away; True if what is being raised (`kind`) is its doing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._expired:
            return False
        mine = self._task.uncancel() <= self._before
        return mine and kind is not None and issubclass(kind, asyncio.CancelledError)
