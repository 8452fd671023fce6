"""A task, and what it tells while it works: read as it comes, or waited for as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

E = TypeVar("E")
R = TypeVar("R")
Tell = Callable[[E], Awaitable[None]]
_AHEAD = 64
"""So much may be told before somebody has to read it."""


class TaskStream(Generic[E, R]):
    """Begins when it is first asked for; leaving it before its end stops the task."""

    def __init__(self, work: Callable[[Tell[E]], Awaitable[R]]) -> None:
        self._work = work
        self._task: asyncio.Task[R] | None = None
        self._queue: asyncio.Queue[E | None] = asyncio.Queue(_AHEAD)

    async def events(self) -> AsyncIterator[E]:
        """Everything it tells; raises what it fails with."""
        task = self._begin()
        try:
            while (event := await self._queue.get()) is not None:
                yield event
            await task
        finally:
            await self.aclose()

    async def _outcome(self) -> R:
        """What came of it; what was not read yet is skipped."""
        task = self._begin()
        while not task.done() and await self._queue.get() is not None:
            pass
        return await task

    def _begin(self) -> asyncio.Task[R]:
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return self._task

    async def _run(self) -> R:
        try:
            outcome = await self._work(self._queue.put)
        except asyncio.CancelledError:
            if self._queue.full():  # nobody reads what is left
                self._queue.get_nowait()
            self._queue.put_nowait(None)
            raise
        except BaseException:
            await self._queue.put(None)  # what came before the error is read before it
            raise
        await self._queue.put(None)
        return outcome

    async def aclose(self) -> None:
        """Stop the task if it is not done."""
        task = self._task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
