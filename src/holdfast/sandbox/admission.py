"""Who may make a sandbox now, and who waits: first come, first served, from any loop or thread.

A host has at most `max_sandboxes` at a time, and makes only a few at once, since many that are
made together under load would all be late. Waiting has no limit of its own: put one around it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future


class Turns:
    """So many at a time; the rest in the order they came."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._free = most
        self._lock = threading.Lock()
        self._waiting: deque[Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether the next one has to wait."""
        return self._free == 0

    async def take(self) -> None:
        """Wait for a turn."""
        with self._lock:
            if self._free and not self._waiting:
                self._free -= 1
                return
            turn: Future[None] = Future()
            self._waiting.append(turn)
        try:
            await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had come in the same moment
                self.give_back()
            raise

    def give_back(self) -> None:
        """Let the next one have it."""
        with self._lock:
            while self._waiting:
                turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            self._free += 1
