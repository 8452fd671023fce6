"""Anthropic's content blocks, both ways."""

from __future__ import annotations

import json
from typing import Any

from holdfast.gateway.formats.json_fields import Json, WireError, fields, items, text
from holdfast.gateway.formats.reasoning import pack, unpack
from holdfast.gateway.messages import (
    CacheFor,
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


def _encode_call(part: ToolCallPart) -> Json:
    try:
        given = json.loads(part.arguments or "{}")
    except ValueError:
        given = {"_unparsed": part.arguments}
    return {"type": "tool_use", "id": part.id, "name": part.name, "input": given}


def _encode_result(part: ToolResultPart) -> Json:
    content: Any = [
        {"type": "text", "text": piece.text}
        if isinstance(piece, TextPart)
        else {"type": "image", "source": _encode_source(piece)}
        for piece in part.content
    ]
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
    pieces: list[TextPart | ImagePart] = []
    if isinstance(content, str):
        pieces.append(TextPart(content))
    else:
        for n, raw in enumerate(items(content, f"{path}.content")):
            piece = decode_part(fields(raw, f"{path}.content[{n}]"), f"{path}.content[{n}]")
            if not isinstance(piece, TextPart | ImagePart):
                raise WireError(f"{path}.content[{n}]: only text and images can be translated")
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
