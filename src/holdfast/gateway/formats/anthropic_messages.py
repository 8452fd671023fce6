"""Anthropic's content blocks, whole and streamed, both ways.

`message_stop` is the proof of a whole answer.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from holdfast.gateway.formats.base import Failure, StreamFailure
from holdfast.gateway.formats.json_fields import (
    Json,
    WireError,
    count,
    details,
    fields,
    items,
    text,
)
from holdfast.gateway.formats.sse import event as sse
from holdfast.gateway.formats.translation import pack, unpack
from holdfast.gateway.messages import (
    CacheFor,
    FilePart,
    ImagePart,
    Message,
    Part,
    ReasoningPart,
    RefusalPart,
    ReplyPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from holdfast.gateway.reply import (
    End,
    Event,
    FinishReason,
    PartDelta,
    PartEnd,
    PartStart,
    Start,
    Usage,
)


def encode_system(messages: tuple[Message, ...]) -> list[Json]:
    """All system messages, gathered: Anthropic keeps instructions apart from the turns."""
    return [
        _cached({"type": "text", "text": part.text}, part.cache)
        for message in messages
        if message.role == "system"
        for part in message.parts
        if isinstance(part, TextPart) and part.text
    ]


def encode_messages(messages: tuple[Message, ...]) -> list[Json]:
    """The turns; neighbours of one role become one turn, as Anthropic wants them."""
    turns: list[Json] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = [block for part in message.parts if (block := _encode_part(part)) is not None]
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].extend(blocks)
        else:
            turns.append({"role": role, "content": blocks})
    return turns


def _encode_part(part: Part) -> Json | None:
    match part:
        case TextPart():
            # An empty text block is refused by the API.
            return _cached({"type": "text", "text": part.text}, part.cache) if part.text else None
        case ImagePart():
            return _cached({"type": "image", "source": _encode_source(part)}, part.cache)
        case FilePart():
            return _cached(_encode_file(part), part.cache)
        case ToolCallPart():
            return _encode_call(part)
        case ToolResultPart():
            return _encode_result(part)
        case ReasoningPart():
            return _encode_reasoning(part)
        case RefusalPart():
            return {"type": "text", "text": part.text}


def _encode_source(part: ImagePart) -> Json:
    if part.data is not None:
        media = part.media_type or "image/png"
        return {"type": "base64", "media_type": media, "data": part.data}
    return {"type": "url", "url": part.url}


def _encode_file(part: FilePart) -> Json:
    if part.kind in ("audio", "video"):
        raise WireError(
            f"a file of type {part.media_type!r} can't be translated: anthropic has none"
        )
    if part.file_id is not None:
        source: Json = {"type": "file", "file_id": part.file_id}
    elif part.url is not None:
        source = {"type": "url", "url": part.url}
    elif part.kind == "text":
        words = base64.b64decode(part.data or "").decode("utf-8", "replace")
        source = {"type": "text", "media_type": "text/plain", "data": words}
    else:
        media = part.media_type or "application/pdf"
        source = {"type": "base64", "media_type": media, "data": part.data}
    return {"type": "document", "source": source} | ({"title": part.name} if part.name else {})


def _decode_file(block: Json, path: str, cache: CacheFor | None) -> FilePart:
    source = fields(block.get("source"), f"{path}.source")
    name = block.get("title")
    match source.get("type"):
        case "base64":
            data = text(source.get("data"), f"{path}.source.data")
            media = str(source.get("media_type") or "application/pdf")
            return FilePart(data=data, media_type=media, name=name, cache=cache)
        case "text":
            words = text(source.get("data"), f"{path}.source.data").encode("utf-8", "replace")
            return replace(FilePart.of(words, "text/plain", name), cache=cache)
        case "url":
            url = text(source.get("url"), f"{path}.source.url")
            return FilePart(url=url, media_type="application/pdf", name=name, cache=cache)
        case "file":
            kept = text(source.get("file_id"), f"{path}.source.file_id")
            return FilePart(file_id=kept, name=name, cache=cache)
        case other:
            raise WireError(f"{path}.source: a document of type {other!r} can't be translated")


def _encode_call(part: ToolCallPart) -> Json:
    try:
        given = json.loads(part.arguments or "{}")
    except ValueError:
        given = {"_unparsed": part.arguments}
    return {"type": "tool_use", "id": part.id, "name": part.name, "input": given}


def _encode_piece(piece: TextPart | ImagePart | FilePart) -> Json:
    match piece:
        case TextPart():
            return {"type": "text", "text": piece.text}
        case ImagePart():
            return {"type": "image", "source": _encode_source(piece)}
        case FilePart():
            return _encode_file(piece)


def _encode_result(part: ToolResultPart) -> Json:
    content: Any = [_encode_piece(piece) for piece in part.content]
    if len(part.content) == 1 and isinstance(part.content[0], TextPart):
        content = part.content[0].text
    block: Json = {"type": "tool_result", "tool_use_id": part.call_id, "content": content}
    if part.is_error:
        block["is_error"] = True
    return _cached(block, part.cache)


def _encode_reasoning(part: ReasoningPart) -> Json | None:
    if part.origin != "anthropic":
        return None  # no other provider's reasoning can be verified there
    if part.encrypted and not part.signature:
        return {"type": "redacted_thinking", "data": part.encrypted}
    if part.signature:
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}
    return None


def _cached(block: Json, cache: CacheFor | None) -> Json:
    if cache:
        block["cache_control"] = {"type": "ephemeral"} | ({"ttl": "1h"} if cache == "1h" else {})
    return block


def decode_message(message: Json, path: str) -> Message:
    role = message.get("role")
    content = message.get("content")
    if role not in ("user", "assistant", "system"):
        raise WireError(f"{path}.role: there is no role {role!r}")
    if isinstance(content, str):
        return Message(role, (TextPart(content),))
    parts = tuple(
        decode_part(fields(raw, f"{path}.content[{n}]"), f"{path}.content[{n}]")
        for n, raw in enumerate(items(content, f"{path}.content"))
    )
    if role == "user" and parts and all(isinstance(part, ToolResultPart) for part in parts):
        return Message("tool", parts)
    return Message(role, parts)


def decode_part(block: Json, path: str) -> Part:
    cache = _decode_cache(block)
    match block.get("type"):
        case "text":
            return TextPart(text(block.get("text"), f"{path}.text"), cache)
        case "image":
            return _decode_image(fields(block.get("source"), f"{path}.source"), path, cache)
        case "document":
            return _decode_file(block, path, cache)
        case "tool_use":
            arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
            name = text(block.get("name"), f"{path}.name")
            return ToolCallPart(text(block.get("id"), f"{path}.id"), name, arguments)
        case "tool_result":
            return _decode_result(block, path, cache)
        case "thinking":
            words, signature = str(block.get("thinking") or ""), block.get("signature")
            if (foreign := unpack(signature)) is not None:
                return foreign
            return ReasoningPart(words, signature=signature, origin="anthropic")
        case "redacted_thinking":
            data = text(block.get("data"), f"{path}.data")
            return ReasoningPart(encrypted=data, origin="anthropic")
        case other:
            raise WireError(f"{path}: a block of type {other!r} can't be translated")


def _decode_result(block: Json, path: str, cache: CacheFor | None) -> ToolResultPart:
    content = block.get("content")
    pieces: list[TextPart | ImagePart | FilePart] = []
    if isinstance(content, str):
        pieces.append(TextPart(content))
    else:
        for n, raw in enumerate(items(content, f"{path}.content")):
            piece = decode_part(fields(raw, f"{path}.content[{n}]"), f"{path}.content[{n}]")
            if not isinstance(piece, TextPart | ImagePart | FilePart):
                raise WireError(
                    f"{path}.content[{n}]: only text, images and documents can be translated"
                )
            pieces.append(piece)
    call = text(block.get("tool_use_id"), f"{path}.tool_use_id")
    return ToolResultPart(call, tuple(pieces), bool(block.get("is_error")), cache)


def _decode_image(source: Json, path: str, cache: CacheFor | None) -> ImagePart:
    match source.get("type"):
        case "base64":
            media = text(source.get("media_type"), f"{path}.source.media_type")
            data = text(source.get("data"), f"{path}.source.data")
            return ImagePart(data=data, media_type=media, cache=cache)
        case "url":
            return ImagePart(url=text(source.get("url"), f"{path}.source.url"), cache=cache)
        case other:
            raise WireError(f"{path}.source: an image of type {other!r} can't be translated")


def _decode_cache(block: Json) -> CacheFor | None:
    control = block.get("cache_control")
    if not control:
        return None
    return "1h" if fields(control, "cache_control").get("ttl") == "1h" else "5m"


def encode_reply_part(part: ReplyPart) -> Json:
    """A part of an answer as a block; reasoning from elsewhere has no signature to show."""
    match part:
        case TextPart() | RefusalPart():
            return {"type": "text", "text": part.text}
        case ToolCallPart():
            return _encode_call(part)
        case ReasoningPart():
            if part.encrypted and not part.text and part.origin == "anthropic":
                return {"type": "redacted_thinking", "data": part.encrypted}
            signature = pack(part, "anthropic") or part.signature or ""
            return {"type": "thinking", "thinking": part.text, "signature": signature}


def decode_reply_part(block: Json) -> ReplyPart | None:
    """A block of an answer; blocks of the provider's own tools have no canonical form."""
    kind = block.get("type")
    if kind not in ("text", "tool_use", "thinking", "redacted_thinking"):
        return None
    part = decode_part(block, "content")
    assert isinstance(part, TextPart | ToolCallPart | ReasoningPart)
    return part


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
    own = details(usage.get("server_tool_use"))
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
        searches=count(own.get("web_search_requests")),
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
        self.last = False
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
                self.last = True
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
        if not self.last or self._finish is None:
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
