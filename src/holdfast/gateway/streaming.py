"""A reply that is read as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType

from holdfast.gateway.events import Event, PartDelta, PartStart, as_events
from holdfast.gateway.messages import TextPart
from holdfast.gateway.reply import Completion, Reply
from holdfast.gateway.work import OnEvent

Starter = Callable[[OnEvent], Awaitable[Reply]]
_AHEAD = 64


class ReplyStream:
    """Iterate it for the answer's text; `events()` has everything, `reply()` the whole.

    Leaving it before its end stops the call, which is recorded as interrupted.
    """

    def __init__(self, start: Starter) -> None:
        self._start = start
        self._task: asyncio.Task[Reply] | None = None
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue(_AHEAD)

    def __aiter__(self) -> AsyncIterator[str]:
        return self._text()

    async def _text(self) -> AsyncIterator[str]:
        shown: set[int] = set()
        async for event in self.events():
            if isinstance(event, PartStart) and isinstance(event.part, TextPart):
                shown.add(event.index)
                if event.part.text:
                    yield event.part.text
            elif isinstance(event, PartDelta) and event.index in shown:
                yield event.text

    async def events(self) -> AsyncIterator[Event]:
        """Every event of the answer; raises what the call fails with."""
        task = self._begin()
        try:
            while (event := await self._queue.get()) is not None:
                yield event
            await task
        finally:
            await self.aclose()

    async def reply(self) -> Reply:
        """The whole reply; what was not read yet is skipped."""
        task = self._begin()
        while not task.done():
            await self._queue.get()
        return await task

    def _begin(self) -> asyncio.Task[Reply]:
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return self._task

    async def _run(self) -> Reply:
        events = 0

        async def on_event(event: Event) -> None:
            nonlocal events
            events += 1
            await self._queue.put(event)

        try:
            reply = await self._start(on_event)
            if not events:  # a replay, or a durable step: the answer is there at once
                for event in as_events(_completion(reply)):
                    await self._queue.put(event)
        except asyncio.CancelledError:
            self._give_up()
            raise
        except BaseException:
            await self._queue.put(None)  # what came before the error is read before it
            raise
        await self._queue.put(None)
        return reply

    def _give_up(self) -> None:
        """Stopped: nobody reads what is left."""
        if self._queue.full():
            self._queue.get_nowait()
        self._queue.put_nowait(None)

    async def aclose(self) -> None:
        """Stop the call if it is not done."""
        task = self._task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])

    async def __aenter__(self) -> ReplyStream:
        self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


def _completion(reply: Reply) -> Completion:
    return Completion(reply.parts, reply.finish, reply.served_by, reply.usage)
