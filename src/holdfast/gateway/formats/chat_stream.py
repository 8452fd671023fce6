"""Chat completions as a stream, both ways.

The wire has no part boundaries: a part starts with its first delta and ends when another kind
begins. `finish_reason` is the proof of a whole answer; `[DONE]` alone is not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from holdfast.gateway.events import End, Event, PartDelta, PartEnd, PartStart, Start
from holdfast.gateway.formats import openai
from holdfast.gateway.formats.base import Failure, StreamFailure
from holdfast.gateway.formats.chat_messages import (
    DetailsCollector,
    content_pieces,
    decode_usage,
    encode_usage,
    signed_id,
)
from holdfast.gateway.formats.json_fields import Json, WireError, fields, items, text
from holdfast.gateway.formats.sse import DONE, event
from holdfast.gateway.messages import ReasoningPart, RefusalPart, ReplyPart, TextPart, ToolCallPart
from holdfast.gateway.reply import FinishReason, Usage

_KINDS: dict[str, type[ReplyPart]] = {
    "reasoning_content": ReasoningPart,
    "reasoning": ReasoningPart,
    "content": TextPart,
    "refusal": RefusalPart,
}


FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


def encode_finish(finish: FinishReason) -> str:
    return {"refusal": "stop", "pause": "stop"}.get(finish, finish)


def decode_finish(finish: str) -> FinishReason:
    return FINISH.get(finish, "stop")


class ChatDecoder:
    def __init__(self) -> None:
        self.done = False
        self._started = False
        self._open: tuple[str, int] | None = None
        self._calls: dict[int, int] = {}
        self._ids: dict[int, Any] = {}
        self._ended: list[int] = []
        """Calls whose number another has taken."""
        self._next = 0
        self._finish: FinishReason | None = None
        self._usage: Usage | None = None
        self._refused = False
        self._details = DetailsCollector()

    def feed(self, data: Json) -> Iterator[Event]:
        if data.get("error") or data.get("object") == "error":
            raise StreamFailure(openai.decode(data) or Failure(str(data)))
        if not self._started:
            self._started = True
            yield Start(data.get("id"), str(data.get("model") or ""))
        if usage := decode_usage(data.get("usage")):
            self._usage = usage
        for raw in items(data.get("choices"), "choices"):
            choice = fields(raw, "choices[0]")
            if choice.get("index"):
                continue  # n > 1 passes through raw; translated, the first choice is the answer
            delta = choice.get("delta")
            if delta is not None:
                yield from self._delta(fields(delta, "choices[0].delta"))
            if finish := choice.get("finish_reason"):
                self._finish = decode_finish(text(finish, "finish_reason"))
                self.done = True

    def _delta(self, delta: Json) -> Iterator[Event]:
        self._details.add(delta.get("reasoning_details"))
        for name, kind in _KINDS.items():
            words = delta.get(name)
            if words:
                if name == "reasoning" and delta.get("reasoning_content"):
                    continue  # OpenRouter and vLLM may send both, with the same words
                if name == "content" and not isinstance(words, str):
                    for part, piece in content_pieces(words, "delta.content"):
                        yield from self._grow(part, piece)
                else:
                    yield from self._grow(kind, text(words, f"delta.{name}"))
        for raw in items(delta.get("tool_calls"), "delta.tool_calls"):
            yield from self._call(fields(raw, "delta.tool_calls"))

    def _grow(self, kind: type[ReplyPart], words: str) -> Iterator[Event]:
        name = kind.__name__
        self._refused = self._refused or kind is RefusalPart
        if self._open is None or self._open[0] != name:
            yield from self._close()
            self._open = (name, self._next)
            part = ReasoningPart(origin="chat") if kind is ReasoningPart else (
                RefusalPart("") if kind is RefusalPart else TextPart("")
            )  # fmt: skip
            yield PartStart(self._next, part)
            self._next += 1
        yield PartDelta(self._open[1], words)

    def _call(self, call: Json) -> Iterator[Event]:
        number = call.get("index")
        number = number if isinstance(number, int) else len(self._calls)
        function = fields(call.get("function") or {}, "delta.tool_calls.function")
        given = call.get("id")
        begins = number in self._calls and given and function.get("name")
        if begins and self._ids.get(number) not in (None, given):
            # Some number every call 0: another id and a name begin another call.
            self._ended.append(self._calls.pop(number))
        if number not in self._calls:
            self._ids[number] = given
            yield from self._close()
            yield from self._late_details()
            name = text(function.get("name"), "delta.tool_calls.function.name")
            self._calls[number] = self._next
            identity = signed_id(str(given or f"call_{self._next}"), call)
            yield PartStart(self._next, ToolCallPart(identity, name))
            self._next += 1
        if arguments := function.get("arguments"):
            words = text(arguments, "delta.tool_calls.function.arguments")
            yield PartDelta(self._calls[number], words)

    def _close(self) -> Iterator[Event]:
        if self._open is not None:
            name, index = self._open
            reasons = name == ReasoningPart.__name__
            yield PartEnd(index, encrypted=self._details.take() if reasons else None)
            self._open = None

    def _late_details(self) -> Iterator[Event]:
        """What came of the reasoning's account after its words: a part of its own."""
        if details := self._details.take():
            yield PartStart(self._next, ReasoningPart(origin="chat"))
            yield PartEnd(self._next, encrypted=details)
            self._next += 1

    def close(self) -> Iterator[Event]:
        if self._finish is None:
            raise WireError("the stream ended without a finish_reason")
        yield from self._close()
        yield from self._late_details()
        for index in (*self._ended, *self._calls.values()):
            yield PartEnd(index)
        finish: FinishReason = self._finish
        if self._refused:
            finish = "refusal"
        elif (self._calls or self._ended) and finish == "stop":  # some compatible servers say so
            finish = "tool_calls"
        yield End(finish, self._usage)


class ChatEncoder:
    def __init__(self, *, include_usage: bool) -> None:
        self._include_usage = include_usage
        self._id, self._model, self._created = "chatcmpl-holdfast", "", int(time.time())
        self._parts: dict[int, ReplyPart] = {}
        self._calls: dict[int, int] = {}

    def encode(self, event: Event) -> bytes:
        match event:
            case PartDelta(index, words):
                return self._chunk(self._grow(index, words))
            case Start():
                self._id, self._model = event.id or self._id, event.model
                return self._chunk({"role": "assistant", "content": "", "refusal": None})
            case PartStart(index, part):
                return self._begin(index, part)
            case PartEnd():
                return b""
            case End():
                return self._end(event)

    def _begin(self, index: int, part: ReplyPart) -> bytes:
        self._parts[index] = part
        if isinstance(part, ToolCallPart):
            number = self._calls[index] = len(self._calls)
            function = {"name": part.name, "arguments": part.arguments}
            call = {"index": number, "id": part.id, "type": "function", "function": function}
            return self._chunk({"tool_calls": [call]})
        return self._chunk(self._grow(index, part.text)) if part.text else b""

    def _grow(self, index: int, words: str) -> Json:
        part = self._parts[index]
        if isinstance(part, ToolCallPart):
            call = {"index": self._calls[index], "function": {"arguments": words}}
            return {"tool_calls": [call]}
        if isinstance(part, RefusalPart):
            return {"refusal": words}
        return {"reasoning_content" if isinstance(part, ReasoningPart) else "content": words}

    def _end(self, end: End) -> bytes:
        out = self._chunk({}, encode_finish(end.finish))
        if self._include_usage and end.usage:
            out += event({**self._base(), "choices": [], "usage": encode_usage(end.usage)})
        return out + DONE

    def _chunk(self, delta: Json, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**self._base(), "choices": [choice]})

    def _base(self) -> Json:
        return {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
        }
