"""The wall time of one run of an agent, which stands still while people are waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType


class WallTime:
    """A time limit around a block. Past it the block is cancelled and TimeoutError raised.

    Uses the running loop's time: in a workflow body that is the run's own, so that the limit is a
    durable timer and the same on every replay.
    """

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._since = 0.0
        self._waiting = 0
        self._limit: asyncio.Timeout | None = None

    @property
    def over(self) -> bool:
        """Whether the limit was reached."""
        return self._limit is not None and self._limit.expired()

    async def __aenter__(self) -> WallTime:
        self._since = asyncio.get_running_loop().time()
        self._limit = asyncio.timeout(self._left)
        await self._limit.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        assert self._limit is not None
        return await self._limit.__aexit__(kind, error, trace)

    @contextmanager
    def stopped(self) -> Generator[None]:
        """Do not count the time spent in this block; several may be under way at once."""
        limit, loop = self._limit, asyncio.get_running_loop()
        assert limit is not None
        self._waiting += 1
        if self._waiting == 1:
            self._left -= loop.time() - self._since
            limit.reschedule(None)
        try:
            yield
        finally:
            self._waiting -= 1
            if self._waiting == 0 and not limit.expired():
                self._since = loop.time()
                limit.reschedule(self._since + max(self._left, 0.0))
