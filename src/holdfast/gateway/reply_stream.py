"""A reply that is read as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from holdfast.gateway.events import Event, PartDelta, PartStart, as_events
from holdfast.gateway.library_call import OnEvent
from holdfast.gateway.messages import TextPart
from holdfast.gateway.reply import Completion, Reply
from holdfast.task_stream import TaskStream

Starter = Callable[[OnEvent], Awaitable[Reply]]


class ReplyStream(TaskStream[Event, Reply]):
    """Iterate it for the answer's text; `events()` has everything, `reply()` the whole.

    Leaving it before its end stops the call, which is recorded as interrupted.
    """

    def __init__(self, start: Starter) -> None:
        super().__init__(self._call)
        self._start = start

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

    async def reply(self) -> Reply:
        """The whole reply; what was not read yet is skipped."""
        return await self._outcome()

    async def _call(self, tell: OnEvent) -> Reply:
        events = 0

        async def on_event(event: Event) -> None:
            nonlocal events
            events += 1
            await tell(event)

        reply = await self._start(on_event)
        if not events:  # a replay, or a durable step: the answer is there at once
            for event in as_events(_completion(reply)):
                await tell(event)
        return reply


def _completion(reply: Reply) -> Completion:
    return Completion(reply.parts, reply.finish, reply.served_by, reply.usage)
