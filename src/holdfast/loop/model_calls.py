"""The model calls of one agent: plain, streamed to whoever reads along, or durable.

In a workflow body a call is a step. Its record holds what is new since the call before it and a
digest of the rest, which the body has anyway when it is replayed: the journal of an agent grows
with its conversation, not with its square. To be read along while it is made, a call has to be
streamed from within its step, into one of the run's streams.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from typing import Any

from holdfast.gateway.calls import (
    Options,
    ReplyStream,
    current_tags,
    default_gateway,
    make_request,
    perform,
)
from holdfast.gateway.canonical_json import request_text
from holdfast.gateway.messages import Message, ReasoningPart, Request, TextPart
from holdfast.gateway.reply import Event, PartDelta, PartStart, Reply
from holdfast.loop.agent_stream import AgentEvent, Emit, ReasoningPiece, TextPiece, as_chunk
from holdfast.loop.plan import StepPlan
from holdfast.loop.tool_calls import kindred_step
from holdfast.runtime.context import execution, write_stream


class ModelCalls:
    """Makes the calls; `emit` gets their pieces here, `stream` has them in a stream of the run."""

    def __init__(self, emit: Emit | None, stream: str | None) -> None:
        self._emit, self._stream = emit, stream
        self._sent: tuple[Message, ...] = ()
        self._digest = ""

    async def ask(self, plan: StepPlan, options: Options) -> Reply:
        """One call."""
        request = make_request(plan.model, plan.system, None, plan.messages, options)
        tags = (*current_tags(), *options.get("tags", ()))
        if execution() is not None:
            return await self._durably(request, tags)
        if self._emit is None:
            return await perform(request, options)
        gateway = default_gateway()
        reading = ReplyStream(lambda on_event: gateway.call(request, tags=tags, on_event=on_event))
        pieces = Pieces()
        async with reading:
            async for event in reading.events():
                if (piece := pieces.of(event)) is not None:
                    await self._emit(piece)
            return await reading.reply()

    async def _durably(self, request: Request, tags: tuple[str, ...]) -> Reply:
        if request.messages[: len(self._sent)] != self._sent:
            self._sent, self._digest = (), ""  # somebody prepared another conversation
        before = self._sent
        added = request.messages[len(before) :]

        async def call(
            model: str,
            added: tuple[Message, ...],
            rest: str,
            tags: tuple[str, ...],
            stream: str | None,
        ) -> Reply:
            # From the arguments where they say it, so that a fork may have edited them.
            asked = replace(request, model=model, messages=(*before, *added))
            return await call_model(asked, tags, stream)

        kind = "generate_text" if self._stream is None else "stream_text"
        step = kindred_step(call, name=f"{kind} {request.model}")
        rest = _digest(self._digest, replace(request, messages=()))
        reply = await step(request.model, added, rest, tags, self._stream)
        self._digest = _digest(self._digest, replace(request, messages=added))
        self._sent = request.messages
        if self._emit is not None:
            for part in reply.parts:
                if isinstance(part, TextPart | ReasoningPart) and part.text:
                    kind_of = TextPiece if isinstance(part, TextPart) else ReasoningPiece
                    await self._emit(kind_of(part.text))
        return reply


def _digest(before: str, request: Request) -> str:
    text = f"{before}\n{request_text(request)}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


async def call_model(request: Request, tags: tuple[str, ...], stream: str | None) -> Reply:
    """One call in a step; its pieces go to a stream of the run, if one is named."""
    if stream is None:
        return await default_gateway().call(request, tags=tags)
    writing, pieces = _Writing(stream), Pieces()

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
