"""One model call of an agent: plain, or streamed to whoever reads along.

In a workflow body a call is a step. To be read along while it is made it has to be streamed from
within that step, into one of the run's streams: `agent.run(…, stream="output")`.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from holdfast.gateway.calls import (
    Options,
    current_tags,
    default_gateway,
    make_request,
    perform,
    stream_text,
)
from holdfast.gateway.events import Event, PartDelta, PartStart
from holdfast.gateway.messages import ReasoningPart, TextPart
from holdfast.gateway.reply import Reply
from holdfast.gateway.request import Request
from holdfast.interception import interceptor
from holdfast.loop.plan import StepPlan
from holdfast.loop.streaming import AgentEvent, Emit, ReasoningPiece, TextPiece, as_chunk
from holdfast.runtime.context import write_stream


async def ask(plan: StepPlan, options: Options, emit: Emit | None, stream: str | None) -> Reply:
    """Make the call; `emit` gets its pieces here, `stream` has them in a stream of the run."""
    durable = interceptor()
    if durable is not None and stream is not None:
        request = make_request(plan.model, plan.system, None, plan.messages, options)
        tags = (*current_tags(), *options.get("tags", ()))
        return await durable(f"stream_text {plan.model}", stream_model, (request, tags, stream))
    if emit is None:
        request = make_request(plan.model, plan.system, None, plan.messages, options)
        return await perform(request, options)
    reading = stream_text(
        plan.model, system=plan.system, messages=plan.messages, **cast(Any, options)
    )
    pieces = Pieces()
    async with reading:
        async for event in reading.events():
            if (piece := pieces.of(event)) is not None:
                await emit(piece)
        return await reading.reply()


async def stream_model(asked: tuple[Request, tuple[str, ...], str]) -> Reply:
    """One call whose pieces go to a stream of the run: what the runtime runs as a step."""
    request, tags, stream = asked
    writing = _Writing(stream)
    pieces = Pieces()

    async def take(event: Event) -> None:
        if (piece := pieces.of(event)) is not None:
            writing.add(piece)

    reply = await default_gateway().call(request, tags=tags, on_event=take)
    await writing.end()
    return reply


class Pieces:
    """Tells what part of an answer each event of its stream belongs to."""

    def __init__(self) -> None:
        self._kinds: dict[int, type[TextPiece] | type[ReasoningPiece]] = {}

    def of(self, event: Event) -> AgentEvent | None:
        if isinstance(event, PartStart):
            if isinstance(event.part, TextPart):
                self._kinds[event.index] = TextPiece
            elif isinstance(event.part, ReasoningPart):
                self._kinds[event.index] = ReasoningPiece
            else:
                return None
            return self._kinds[event.index](event.part.text) if event.part.text else None
        if isinstance(event, PartDelta) and event.index in self._kinds and event.text:
            return self._kinds[event.index](event.text)
        return None


class _Writing:
    """Writes pieces to a stream; what comes while one is written goes into the next."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._waiting: list[dict[str, Any]] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, piece: AgentEvent) -> None:
        chunk = as_chunk(piece)
        assert chunk is not None
        if self._waiting and self._waiting[-1]["type"] == chunk["type"]:
            self._waiting[-1]["text"] += chunk["text"]
        else:
            self._waiting.append(chunk)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write())

    async def _write(self) -> None:
        while self._waiting:
            await write_stream(self._waiting.pop(0), stream=self._stream)

    async def end(self) -> None:
        if self._task is not None:
            await self._task
        await self._write()
