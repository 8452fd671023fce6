"""An agent's work as it happens: pieces of text, tools called and finished, steps done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar

from holdfast.gateway.messages import ToolCallPart
from holdfast.loop.results import AgentResult, AgentStep, ToolRun

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Some of the model's answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPiece:
    """Some of the model's reasoning, where it can be read."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The model wants a tool called; its arguments are whole."""

    call: ToolCallPart


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """What came of a tool call."""

    run: ToolRun


@dataclass(frozen=True, slots=True)
class StepFinished:
    """A turn of the loop is done."""

    step: AgentStep


AgentEvent = TextPiece | ReasoningPiece | ToolCalled | ToolFinished | StepFinished
Emit = Callable[[AgentEvent], Awaitable[None]]
_AHEAD = 64


class AgentStream(Generic[T]):
    """Iterate it for the text; `events()` has everything, `result()` what came of it.

    Leaving it before its end stops the agent.
    """

    def __init__(self, start: Callable[[Emit], Awaitable[AgentResult[T]]]) -> None:
        self._start = start
        self._task: asyncio.Task[AgentResult[T]] | None = None
        self._queue: asyncio.Queue[AgentEvent | None] = asyncio.Queue(_AHEAD)

    def __aiter__(self) -> AsyncIterator[str]:
        return self._text()

    async def _text(self) -> AsyncIterator[str]:
        async for event in self.events():
            if isinstance(event, TextPiece):
                yield event.text

    async def events(self) -> AsyncIterator[AgentEvent]:
        """Everything that happens; raises what the agent fails with."""
        task = self._begin()
        try:
            while (event := await self._queue.get()) is not None:
                yield event
            await task
        finally:
            await self.aclose()

    async def result(self) -> AgentResult[T]:
        """What came of it; what was not read yet is skipped."""
        task = self._begin()
        while not task.done():
            await self._queue.get()
        return await task

    def _begin(self) -> asyncio.Task[AgentResult[T]]:
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return self._task

    async def _run(self) -> AgentResult[T]:
        try:
            result = await self._start(self._queue.put)
        except asyncio.CancelledError:
            if self._queue.full():
                self._queue.get_nowait()
            self._queue.put_nowait(None)
            raise
        except BaseException:
            await self._queue.put(None)  # what came before the error is read before it
            raise
        await self._queue.put(None)
        return result

    async def aclose(self) -> None:
        """Stop the agent if it is not done."""
        task = self._task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])

    async def __aenter__(self) -> AgentStream[T]:
        self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


def as_chunk(event: AgentEvent) -> dict[str, Any] | None:
    """An event as a piece of a run's stream; None for what others already tell."""
    match event:
        case TextPiece(text):
            return {"type": "text", "text": text}
        case ReasoningPiece(text):
            return {"type": "reasoning", "text": text}
        case ToolCalled(call):
            return {"type": "tool_call", "name": call.name, "arguments": call.arguments}
        case ToolFinished(run):
            return {"type": "tool_result", "name": run.name, "status": run.status}
        case StepFinished():
            return None
