"""Bedrock Converse's content blocks, whole and streamed, both ways.

A block is an object with one field, which names what it is. `messageStop` is the proof of a whole
answer; what it used comes after it, in `metadata`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from holdfast.gateway.formats.base import Failure, StreamFailure
from holdfast.gateway.formats.event_stream import frame
from holdfast.gateway.formats.json_fields import Json, WireError, count, fields, items, text
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

_DOCUMENTS = {
    "application/pdf": "pdf", "text/csv": "csv", "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html", "text/plain": "txt", "text/markdown": "md",
}  # fmt: skip
_MEDIA = {name: kind for kind, name in _DOCUMENTS.items()}
_NAMED = {"audio/mpeg": "mp3", "audio/x-wav": "wav", "audio/mp4": "m4a", "video/quicktime": "mov"}
_UNFIT = re.compile(r"[^A-Za-z0-9\s()\[\]-]")
"""What the name of a document may not hold there."""

# --- messages -------------------------------------------------------------------------------


def encode_system(messages: tuple[Message, ...]) -> list[Json]:
    """All system messages, gathered, with the points up to which they are cached."""
    blocks: list[Json] = []
    for message in messages:
        for part in message.parts if message.role == "system" else ():
            if isinstance(part, TextPart) and part.text:
                blocks.extend(({"text": part.text}, *_cache_point(part.cache)))
    return blocks


def encode_messages(messages: tuple[Message, ...]) -> list[Json]:
    """The turns; neighbours of one role become one turn, as Converse wants them."""
    turns: list[Json] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = [one for part in message.parts for one in _encode_part(part)]
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].extend(blocks)
        else:
            turns.append({"role": role, "content": blocks})
    return turns


def _cache_point(cache: CacheFor | None) -> list[Json]:
    if cache is None:
        return []
    return [{"cachePoint": {"type": "default"} | ({"ttl": "1h"} if cache == "1h" else {})}]


def _encode_part(part: Part) -> list[Json]:
    match part:
        case TextPart():
            return [{"text": part.text}, *_cache_point(part.cache)] if part.text else []
        case ImagePart():
            return [_encode_image(part), *_cache_point(part.cache)]
        case FilePart():
            return [_encode_file(part), *_cache_point(part.cache)]
        case ToolCallPart():
            return [_encode_call(part)]
        case ToolResultPart():
            return [_encode_result(part), *_cache_point(part.cache)]
        case ReasoningPart():
            return [] if part.origin != "bedrock" else _encode_reasoning(part)
        case RefusalPart():
            return [{"text": part.text}] if part.text else []


def _encode_image(part: ImagePart) -> Json:
    if part.data is None:
        raise WireError("an image's URL can't be translated: bedrock takes its bytes only")
    kind = (part.media_type or "image/png").partition("/")[2]
    name = "jpeg" if kind == "jpg" else kind
    return {"image": {"format": name, "source": {"bytes": part.data}}}


def _encode_file(part: FilePart) -> Json:
    if part.data is None:
        if not (part.url or "").startswith("s3://"):
            raise WireError("a file's URL can't be translated: bedrock takes bytes, or s3://")
        source: Json = {"s3Location": {"uri": part.url}}
    else:
        source = {"bytes": part.data}
    media = part.media_type or "application/pdf"
    if part.kind in ("audio", "video"):
        name = _NAMED.get(media, media.partition("/")[2])
        return {part.kind: {"format": name, "source": source}}
    name = _DOCUMENTS.get(media)
    if name is None:
        raise WireError(f"a file of type {media!r} can't be translated: bedrock has no name for it")
    title = _UNFIT.sub(" ", (part.name or "document").rpartition(".")[0] or part.name or "document")
    return {"document": {"format": name, "name": " ".join(title.split()), "source": source}}


def _encode_call(part: ToolCallPart) -> Json:
    try:
        given = json.loads(part.arguments or "{}")
    except ValueError:
        given = {"_unparsed": part.arguments}
    return {"toolUse": {"toolUseId": part.id, "name": part.name, "input": given}}


def _encode_piece(piece: TextPart | ImagePart | FilePart) -> Json:
    match piece:
        case TextPart():
            return {"text": piece.text}
        case ImagePart():
            return _encode_image(piece)
        case FilePart():
            if piece.kind == "audio":
                raise WireError("a recording can't be a tool's answer: bedrock takes none there")
            return _encode_file(piece)


def _encode_result(part: ToolResultPart) -> Json:
    content = [_encode_piece(piece) for piece in part.content]
    result: Json = {"toolUseId": part.call_id, "content": content or [{"text": ""}]}
    if part.is_error:
        result["status"] = "error"
    return {"toolResult": result}


def _encode_reasoning(part: ReasoningPart) -> list[Json]:
    if part.encrypted and not part.signature:
        return [{"reasoningContent": {"redactedContent": part.encrypted}}]
    if not part.text and not part.signature:
        return []
    words: Json = {"text": part.text} | ({"signature": part.signature} if part.signature else {})
    return [{"reasoningContent": {"reasoningText": words}}]


def decode_messages(messages: list[Any]) -> tuple[Message, ...]:
    if not messages:
        raise WireError("messages is empty")
    decoded: list[Message] = []
    for n, raw in enumerate(messages):
        message = fields(raw, f"messages[{n}]")
        role = message.get("role")
        if role not in ("user", "assistant"):
            raise WireError(f"messages[{n}].role: there is no role {role!r}")
        parts = decode_blocks(message.get("content"), f"messages[{n}].content")
        if role == "user" and parts and all(isinstance(part, ToolResultPart) for part in parts):
            role = "tool"
        decoded.append(Message(role, parts))
    return tuple(decoded)


def decode_blocks(content: object, path: str) -> tuple[Part, ...]:
    """A client's blocks; a point of caching marks the part before it."""
    parts: list[Part] = []
    for n, raw in enumerate(items(content, path)):
        block = fields(raw, f"{path}[{n}]")
        if "cachePoint" in block:
            cache: CacheFor = "1h" if fields(block["cachePoint"]).get("ttl") == "1h" else "5m"
            if parts and isinstance(
                last := parts[-1], TextPart | ImagePart | FilePart | ToolResultPart
            ):
                parts[-1] = replace(last, cache=cache)
            continue
        parts.append(_decode_block(block, f"{path}[{n}]"))
    return tuple(parts)


def _decode_block(block: Json, path: str) -> Part:
    for name, value in block.items():
        match name:
            case "text":
                return TextPart(text(value, f"{path}.text"))
            case "image":
                return _decode_image(fields(value, path), path)
            case "document" | "audio" | "video":
                return _decode_file(name, fields(value, path), path)
            case "toolUse":
                return _decode_call(fields(value, path), path)
            case "toolResult":
                return _decode_result(fields(value, path), path)
            case "reasoningContent":
                return _decode_reasoning(fields(value, path))
            case _:
                continue
    raise WireError(f"{path}: a block of {', '.join(block) or 'nothing'} can't be translated")


def _decode_image(image: Json, path: str) -> ImagePart:
    source = fields(image.get("source"), f"{path}.image.source")
    if "bytes" not in source:
        raise WireError(f"{path}.image.source: only bytes can be translated")
    kind = text(image.get("format"), f"{path}.image.format")
    return ImagePart(data=text(source["bytes"], f"{path}.image.source.bytes"),
                     media_type=f"image/{kind}")  # fmt: skip


def _decode_file(kind: str, found: Json, path: str) -> FilePart:
    source = fields(found.get("source"), f"{path}.{kind}.source")
    name = text(found.get("format"), f"{path}.{kind}.format")
    if kind == "document":
        media = _MEDIA.get(name, "application/octet-stream")
    else:
        media = next((full for full, short in _NAMED.items() if short == name), f"{kind}/{name}")
    title = found.get("name")
    shown = f"{title}.{name}" if isinstance(title, str) and title else None
    if "bytes" in source:
        data = text(source["bytes"], f"{path}.{kind}.source.bytes")
        return FilePart(data=data, media_type=media, name=shown)
    if "s3Location" in source:
        place = fields(source["s3Location"], f"{path}.{kind}.source.s3Location")
        return FilePart(url=text(place.get("uri"), "s3Location.uri"), media_type=media, name=shown)
    raise WireError(f"{path}.{kind}.source: only bytes and s3Location can be translated")


def _decode_call(call: Json, path: str) -> ToolCallPart:
    return ToolCallPart(
        text(call.get("toolUseId"), f"{path}.toolUse.toolUseId"),
        text(call.get("name"), f"{path}.toolUse.name"),
        json.dumps(call.get("input") or {}, ensure_ascii=False),
    )


def _decode_result(result: Json, path: str) -> ToolResultPart:
    pieces: list[TextPart | ImagePart | FilePart] = []
    for n, raw in enumerate(items(result.get("content"), f"{path}.content")):
        block = fields(raw, f"{path}.content[{n}]")
        if "json" in block:
            pieces.append(TextPart(json.dumps(block["json"], ensure_ascii=False)))
            continue
        piece = _decode_block(block, f"{path}.content[{n}]")
        if not isinstance(piece, TextPart | ImagePart | FilePart):
            raise WireError(f"{path}.content[{n}]: only text, images and files can be translated")
        pieces.append(piece)
    call = text(result.get("toolUseId"), f"{path}.toolResult.toolUseId")
    return ToolResultPart(call, tuple(pieces), result.get("status") == "error")


def _decode_reasoning(found: Json) -> ReasoningPart:
    if "redactedContent" in found:
        return ReasoningPart(encrypted=str(found["redactedContent"]), origin="bedrock")
    words = fields(found.get("reasoningText") or {}, "reasoningText")
    return ReasoningPart(str(words.get("text") or ""), words.get("signature"), origin="bedrock")


# --- answers --------------------------------------------------------------------------------

_STOP: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}
_STATUS = {
    "validationException": 400,
    "accessDeniedException": 403,
    "resourceNotFoundException": 404,
    "modelTimeoutException": 408,
    "throttlingException": 429,
    "serviceQuotaExceededException": 429,
    "modelNotReadyException": 429,
    "modelErrorException": 424,
    "modelStreamErrorException": 424,
    "serviceUnavailableException": 503,
    "internalServerException": 500,
}


def decode_stop(reason: str) -> FinishReason:
    return _STOP.get(reason, "stop")


def encode_stop(finish: FinishReason, stop_sequence: str | None) -> str:
    if finish == "stop":
        return "stop_sequence" if stop_sequence else "end_turn"
    return {"length": "max_tokens", "tool_calls": "tool_use"}.get(finish, "content_filtered")


def decode_usage(value: object) -> Usage | None:
    """Tokens of the cache are counted outside `inputTokens`; ours are inside."""
    if not isinstance(value, dict) or "outputTokens" not in value:
        return None
    usage = cast(Json, value)
    read = count(usage.get("cacheReadInputTokens"))
    written = count(usage.get("cacheWriteInputTokens"))
    kept = sum(
        count(cast(Json, one).get("inputTokens"))
        for one in cast("list[Any]", usage.get("cacheDetails") or [])
        if isinstance(one, dict) and cast(Json, one).get("ttl") == "1h"
    )
    return Usage(
        input=count(usage.get("inputTokens")) + read + written,
        output=count(usage.get("outputTokens")),
        cached=read,
        cache_write=written,
        cache_write_1h=min(kept, written),
    )


def encode_usage(usage: Usage) -> Json:
    return {
        "inputTokens": max(usage.input - usage.cached - usage.cache_write, 0),
        "outputTokens": usage.output,
        "totalTokens": usage.total,
        "cacheReadInputTokens": usage.cached,
        "cacheWriteInputTokens": usage.cache_write,
    }


def encode_reply_part(part: ReplyPart) -> list[Json]:
    if isinstance(part, ReasoningPart):
        return _encode_reasoning(
            part if part.origin == "bedrock" else ReasoningPart(part.text, origin="bedrock")
        )
    return _encode_part(part)


def decode_reply_part(block: Json) -> ReplyPart | None:
    """A block of an answer; blocks of the provider's own tools have no canonical form."""
    if not block.keys() & {"text", "toolUse", "reasoningContent"}:
        return None
    part = _decode_block(block, "content")
    assert isinstance(part, TextPart | ToolCallPart | ReasoningPart)
    return part


def decode_failure(body: Any) -> Failure | None:
    if not isinstance(body, dict):
        return None
    found = cast(Json, body)
    message = found.get("message") or found.get("Message")
    kind = found.get("__type") or found.get("code")
    if message is None and kind is None:
        return None
    return Failure(str(message or kind), None if kind is None else str(kind).rpartition("#")[2])


class BedrockDecoder:
    def __init__(self) -> None:
        self.last = False
        self._parts: dict[int, ReplyPart | None] = {}
        self._signature: dict[int, str] = {}
        self._encrypted: dict[int, str] = {}
        self._finish: FinishReason | None = None
        self._usage: Usage | None = None

    def feed(self, data: Json) -> Iterator[Event]:
        kind: str
        raw: Any
        kind, raw = next(iter(data.items()), ("", None))
        if kind.lower().endswith("exception"):
            name = kind[:1].lower() + kind[1:]
            words = cast(Json, raw).get("message") if isinstance(raw, dict) else None
            raise StreamFailure(Failure(str(words or kind), kind), _STATUS.get(name, 500))
        found = fields(raw or {}, kind or "event")
        match kind:
            case "contentBlockDelta":
                yield from self._delta(found)
            case "contentBlockStart":
                yield from self._start(found)
            case "contentBlockStop":
                index = _index(found)
                if self._parts.get(index) is not None:
                    yield PartEnd(index, self._signature.get(index), self._encrypted.get(index))
            case "messageStart":
                yield Start(None, "")
            case "messageStop":
                self._finish = decode_stop(text(found.get("stopReason"), "stopReason"))
            case "metadata":
                self._usage = decode_usage(found.get("usage"))
                self.last = self._finish is not None
            case _:
                pass  # events of a later version

    def _start(self, data: Json) -> Iterator[Event]:
        index, start = _index(data), fields(data.get("start") or {}, "start")
        part: ReplyPart | None = None
        if "toolUse" in start:
            part = replace(_decode_call(fields(start["toolUse"], "start"), "start"), arguments="")
        if part is not None or start:
            self._parts[index] = part
        if part is not None:
            yield PartStart(index, part)

    def _delta(self, data: Json) -> Iterator[Event]:
        index, delta = _index(data), fields(data.get("delta"), "delta")
        if "text" in delta:
            yield from self._grow(index, TextPart(""), text(delta["text"], "delta.text"))
        elif "toolUse" in delta:
            if not isinstance(self._parts.get(index), ToolCallPart):
                raise WireError(f"a call's arguments came for block {index}, which is no call")
            words = text(fields(delta["toolUse"], "delta.toolUse").get("input"), "delta.toolUse")
            if words:
                yield PartDelta(index, words)
        elif "reasoningContent" in delta:
            thought = fields(delta["reasoningContent"], "delta.reasoningContent")
            words = thought.get("text")
            yield from self._grow(index, ReasoningPart(origin="bedrock"), str(words or ""))
            for name, kept in (
                ("signature", self._signature),
                ("redactedContent", self._encrypted),
            ):
                if isinstance(piece := thought.get(name), str):
                    kept[index] = kept.get(index, "") + piece

    def _grow(self, index: int, part: ReplyPart, words: str) -> Iterator[Event]:
        if index not in self._parts:
            self._parts[index] = part
            yield PartStart(index, part)
        if words and self._parts[index] is not None:
            yield PartDelta(index, words)

    def close(self) -> Iterator[Event]:
        if self._finish is None:
            raise WireError("the stream ended without messageStop")
        yield End(self._finish, self._usage)


def _index(data: Json) -> int:
    index = data.get("contentBlockIndex")
    if not isinstance(index, int):
        raise WireError("contentBlockIndex should be an integer")
    return index


class BedrockEncoder:
    def __init__(self) -> None:
        self._parts: dict[int, ReplyPart] = {}
        self._usage = Usage()

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
                return frame("messageStart", {"role": "assistant"})
            case End():
                return self._finish(event)

    def _start(self, index: int, part: ReplyPart) -> bytes:
        self._parts[index] = part
        if isinstance(part, ToolCallPart):
            start = {"toolUse": {"toolUseId": part.id, "name": part.name}}
            data = {"start": start, "contentBlockIndex": index}
            out = frame("contentBlockStart", data)
            return out + (self._delta(index, part.arguments) if part.arguments else b"")
        return self._delta(index, part.text) if part.text else b""

    def _delta(self, index: int, words: str) -> bytes:
        part = self._parts[index]
        if isinstance(part, ToolCallPart):
            delta: Json = {"toolUse": {"input": words}}
        elif isinstance(part, ReasoningPart):
            delta = {"reasoningContent": {"text": words}}
        else:
            delta = {"text": words}
        return self._block(index, delta)

    def _block(self, index: int, delta: Json) -> bytes:
        return frame("contentBlockDelta", {"delta": delta, "contentBlockIndex": index})

    def _end(self, end: PartEnd) -> bytes:
        part, out = self._parts[end.index], b""
        if isinstance(part, ReasoningPart) and part.origin == "bedrock":
            if signature := end.signature or part.signature:
                out += self._block(end.index, {"reasoningContent": {"signature": signature}})
            if encrypted := end.encrypted or part.encrypted:
                out += self._block(end.index, {"reasoningContent": {"redactedContent": encrypted}})
        return out + frame("contentBlockStop", {"contentBlockIndex": end.index})

    def _finish(self, end: End) -> bytes:
        stop = encode_stop(end.finish, end.stop_sequence)
        usage = encode_usage(end.usage or self._usage)
        metadata = {"usage": usage, "metrics": {"latencyMs": 0}}
        return frame("messageStop", {"stopReason": stop}) + frame("metadata", metadata)
