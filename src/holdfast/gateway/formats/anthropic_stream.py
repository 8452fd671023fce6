"""Anthropic messages as a stream, both ways; `message_stop` is the proof of a whole answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from holdfast.gateway.events import End, Event, PartDelta, PartEnd, PartStart, Start
from holdfast.gateway.formats.anthropic_blocks import decode_reply_part, encode_reply_part
from holdfast.gateway.formats.base import Failure, StreamFailure
from holdfast.gateway.formats.json_fields import Json, WireError, count, details, fields, text
from holdfast.gateway.formats.reasoning import pack
from holdfast.gateway.formats.sse import event as sse
from holdfast.gateway.messages import ReasoningPart, ReplyPart, ToolCallPart
from holdfast.gateway.reply import FinishReason, Usage

_STOP: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "refusal",
    "pause_turn": "pause",
}
_ERROR_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}


def decode_stop(reason: str) -> FinishReason:
    return _STOP.get(reason, "stop")


def encode_stop(finish: FinishReason, stop_sequence: str | None) -> str:
    if finish == "stop":
        return "stop_sequence" if stop_sequence else "end_turn"
    return {
        "length": "max_tokens",
        "tool_calls": "tool_use",
        "content_filter": "refusal",
        "pause": "pause_turn",
    }.get(finish, finish)


def decode_usage(value: object) -> Usage | None:
    """Anthropic counts cached tokens outside `input_tokens`; ours are inside."""
    if not isinstance(value, dict) or "output_tokens" not in value:
        return None
    usage = cast(Json, value)
    read = count(usage.get("cache_read_input_tokens"))
    written = count(usage.get("cache_creation_input_tokens"))
    kept = details(usage.get("cache_creation"))
    outward = details(usage.get("output_tokens_details"))
    return Usage(
        input=count(usage.get("input_tokens")) + read + written,
        output=count(usage.get("output_tokens")),
        cached=read,
        cache_write=written,
        cache_write_1h=min(count(kept.get("ephemeral_1h_input_tokens")), written),
        reasoning=count(outward.get("thinking_tokens")),
    )


def encode_usage(usage: Usage) -> Json:
    return {
        "input_tokens": max(usage.input - usage.cached - usage.cache_write, 0),
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    }


def decode_failure(body: Any) -> Failure | None:
    if not isinstance(body, dict):
        return None
    error = cast(Json, body).get("error")
    if not isinstance(error, dict):
        return None
    inner = cast(Json, error)
    kind = inner.get("type")
    return Failure(str(inner.get("message") or inner), None if kind is None else str(kind))


class AnthropicDecoder:
    def __init__(self) -> None:
        self.done = False
        self._begun = False
        self._usage: Json = {}
        self._finish: FinishReason | None = None
        self._stop_sequence: str | None = None
        self._parts: dict[int, ReplyPart | None] = {}
        self._signature: dict[int, str] = {}

    def feed(self, data: Json) -> Iterator[Event]:
        match data.get("type"):
            case "content_block_delta":
                yield from self._delta(data)
            case "content_block_start":
                yield from self._block_start(data)
            case "content_block_stop":
                yield from self._block_stop(data)
            case "message_start":
                yield self._message_start(data)
            case "message_delta":
                self._message_delta(data)
            case "message_stop":
                self.done = True
            case "error":
                failure = decode_failure(data) or Failure("an error without words")
                raise StreamFailure(failure, _ERROR_STATUS.get(failure.code or ""))
            case _:
                pass  # ping, and events of a later version: the API asks clients to ignore them

    def _message_start(self, data: Json) -> Start:
        self._begun = True
        message = fields(data.get("message"), "message")
        self._usage = dict(fields(message.get("usage") or {}, "usage"))
        model = str(message.get("model") or "")
        return Start(message.get("id"), model, decode_usage(self._usage))

    def _message_delta(self, data: Json) -> None:
        delta = fields(data.get("delta"), "delta")
        if delta.get("stop_reason"):
            self._finish = decode_stop(text(delta["stop_reason"], "delta.stop_reason"))
        self._stop_sequence = delta.get("stop_sequence") or self._stop_sequence
        late = fields(data.get("usage") or {}, "usage")
        self._usage.update({k: v for k, v in late.items() if v is not None})

    def _block_start(self, data: Json) -> Iterator[Event]:
        if not self._begun:
            raise WireError("a block came before message_start")
        index = _index(data)
        part = decode_reply_part(fields(data.get("content_block"), "content_block"))
        if isinstance(part, ToolCallPart) and part.arguments == "{}":
            part = replace(part, arguments="")  # the arguments come by deltas
        self._parts[index] = part
        if part is not None:
            yield PartStart(index, part)

    def _block_stop(self, data: Json) -> Iterator[Event]:
        index = _index(data)
        part = self._parts.get(index)
        if part is not None:
            encrypted = part.encrypted if isinstance(part, ReasoningPart) else None
            yield PartEnd(index, self._signature.get(index), encrypted)

    def _delta(self, data: Json) -> Iterator[Event]:
        index = _index(data)
        if index not in self._parts:
            raise WireError(f"content_block_delta for block {index}, which never started")
        if self._parts[index] is None:
            return
        delta = fields(data.get("delta"), "delta")
        match delta.get("type"):
            case "text_delta":
                yield PartDelta(index, text(delta.get("text"), "delta.text"))
            case "input_json_delta":
                if words := text(delta.get("partial_json"), "delta.partial_json"):
                    yield PartDelta(index, words)
            case "thinking_delta":
                yield PartDelta(index, text(delta.get("thinking"), "delta.thinking"))
            case "signature_delta":
                words = text(delta.get("signature"), "delta.signature")
                self._signature[index] = self._signature.get(index, "") + words
            case _:
                pass  # citations and later additions carry no text of the answer

    def close(self) -> Iterator[Event]:
        if not self.done or self._finish is None:
            raise WireError("the stream ended without message_stop")
        yield End(self._finish, decode_usage(self._usage), self._stop_sequence)


def _index(data: Json) -> int:
    index = data.get("index")
    if not isinstance(index, int):
        raise WireError("index should be an integer")
    return index


class AnthropicEncoder:
    def __init__(self) -> None:
        self._parts: dict[int, ReplyPart] = {}
        self._usage = Usage()
        self._thoughts: list[str] = []

    def encode(self, event: Event) -> bytes:
        match event:
            case PartDelta(index, words):
                return self._delta(index, words)
            case PartStart(index, part):
                return self._start(index, part)
            case PartEnd():
                return self._end(event)
            case Start():
                self._usage = event.usage or self._usage
                return self._message(event)
            case End():
                return self._finish(event)

    def _message(self, start: Start) -> bytes:
        message: Json = {
            "id": start.id or "msg_holdfast",
            "type": "message",
            "role": "assistant",
            "model": start.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": encode_usage(self._usage),
        }
        return _event("message_start", message=message)

    def _start(self, index: int, part: ReplyPart) -> bytes:
        self._parts[index] = part
        block = encode_reply_part(part)
        if isinstance(part, ToolCallPart):
            block["input"] = {}
        out = _event("content_block_start", index=index, content_block=block)
        if isinstance(part, ToolCallPart) and part.arguments:
            out += self._delta(index, part.arguments)
        return out

    def _delta(self, index: int, words: str) -> bytes:
        part = self._parts[index]
        if isinstance(part, ToolCallPart):
            delta = {"type": "input_json_delta", "partial_json": words}
        elif isinstance(part, ReasoningPart):
            delta = {"type": "thinking_delta", "thinking": words}
            self._thoughts.append(words)
        else:
            delta = {"type": "text_delta", "text": words}
        return _event("content_block_delta", index=index, delta=delta)

    def _end(self, end: PartEnd) -> bytes:
        out = b""
        part = self._parts[end.index]
        if isinstance(part, ReasoningPart) and (signature := self._signature(end, part)):
            delta = {"type": "signature_delta", "signature": signature}
            out = _event("content_block_delta", index=end.index, delta=delta)
        return out + _event("content_block_stop", index=end.index)

    def _signature(self, end: PartEnd, part: ReasoningPart) -> str | None:
        whole = replace(
            part,
            text="".join(self._thoughts),
            signature=end.signature or part.signature,
            encrypted=end.encrypted or part.encrypted,
        )
        self._thoughts.clear()
        return pack(whole, "anthropic") or whole.signature

    def _finish(self, end: End) -> bytes:
        stop = encode_stop(end.finish, end.stop_sequence)
        delta = {"stop_reason": stop, "stop_sequence": end.stop_sequence}
        usage = encode_usage(end.usage or self._usage)
        return _event("message_delta", delta=delta, usage=usage) + _event("message_stop")


def _event(kind: str, **data: Any) -> bytes:
    return sse({"type": kind, **data}, kind)
