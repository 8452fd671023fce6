"""An agent's work as it happens: pieces of text, tools called and finished, steps done."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.gateway.messages import ToolCallPart
from holdfast.loop.results import AgentResult, AgentStep, ToolRun
from holdfast.task_stream import TaskStream

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


class AgentStream(TaskStream[AgentEvent, AgentResult[T]]):
    """Iterate it for the text; `events()` has everything, `result()` what came of it.

    Leaving it before its end stops the agent.
    """

    def __aiter__(self) -> AsyncIterator[str]:
        return self._text()

    async def _text(self) -> AsyncIterator[str]:
        async for event in self.events():
            if isinstance(event, TextPiece):
                yield event.text

    async def result(self) -> AgentResult[T]:
        """What came of it; what was not read yet is skipped."""
        return await self._outcome()


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
