"""The messages of chat completions, both ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.gateway.formats.chat_content import plain_id, signed_call
from holdfast.gateway.formats.images import image_from_url, image_url
from holdfast.gateway.formats.json_fields import Json, WireError, fields, items, optional_text, text
from holdfast.gateway.messages import (
    ImagePart,
    Message,
    Part,
    ReasoningPart,
    RefusalPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
"""OpenAI's roles, in both of its formats, as ours."""


def encode_messages(messages: tuple[Message, ...]) -> list[Json]:
    """Canonical messages as chat messages; each tool result becomes a message of its own."""
    encoded: list[Json] = []
    for message in messages:
        results = [part for part in message.parts if isinstance(part, ToolResultPart)]
        others = [part for part in message.parts if not isinstance(part, ToolResultPart)]
        for result in results:
            encoded.extend(_encode_result(result))
        if others or not results:
            encoded.append(_encode_message(message.role, others))
    return encoded


def _encode_message(role: Role, parts: Sequence[Part]) -> Json:
    body: Json = {"role": "user" if role == "tool" else role}
    calls = [part for part in parts if isinstance(part, ToolCallPart)]
    refusals = [part.text for part in parts if isinstance(part, RefusalPart)]
    visible = [part for part in parts if isinstance(part, TextPart | ImagePart)]
    if role == "assistant":
        body["content"] = "".join(p.text for p in visible if isinstance(p, TextPart)) or None
        reasoning = "".join(
            p.text for p in parts if isinstance(p, ReasoningPart) and p.origin == "chat"
        )
        if reasoning and calls:
            # DeepSeek and kin want their own reasoning back while tools are being called.
            body["reasoning_content"] = reasoning
        if refusals:
            body["refusal"] = "".join(refusals)
        if calls:
            body["tool_calls"] = [
                {
                    **signed_call(call.id),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments or "{}"},
                }
                for call in calls
            ]
    elif all(isinstance(part, TextPart) for part in visible) and len(visible) == 1:
        body["content"] = visible[0].text if isinstance(visible[0], TextPart) else ""
    else:
        body["content"] = [_encode_content(part) for part in visible]
    return body


def _encode_content(part: TextPart | ImagePart) -> Json:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    image: Json = {"url": image_url(part)}
    if part.detail:
        image["detail"] = part.detail
    return {"type": "image_url", "image_url": image}


def _encode_result(result: ToolResultPart) -> list[Json]:
    words = f"Error: {result.text}" if result.is_error else result.text
    encoded: list[Json] = [
        {"role": "tool", "tool_call_id": plain_id(result.call_id), "content": words}
    ]
    images = [part for part in result.content if isinstance(part, ImagePart)]
    if images:  # a tool message holds text only; the pictures follow as the user's
        encoded.append({"role": "user", "content": [_encode_content(part) for part in images]})
    return encoded


def decode_messages(messages: list[Any]) -> tuple[Message, ...]:
    if not messages:
        raise WireError("messages is empty")
    decoded: list[Message] = []
    for n, raw in enumerate(messages):
        decoded.append(_decode_message(fields(raw, f"messages[{n}]"), f"messages[{n}]"))
    return tuple(decoded)


def _decode_message(message: Json, path: str) -> Message:
    role = text(message.get("role"), f"{path}.role")
    if role == "tool":
        call = text(message.get("tool_call_id"), f"{path}.tool_call_id")
        content = _decode_content(message.get("content"), f"{path}.content")
        visible = tuple(part for part in content if isinstance(part, TextPart | ImagePart))
        return Message("tool", (ToolResultPart(call, visible),))
    if role not in ROLES:
        raise WireError(f"{path}.role: there is no role {role!r}")
    parts: list[Part] = []
    if role == "assistant" and message.get("reasoning_content"):
        words = text(message["reasoning_content"], f"{path}.reasoning_content")
        parts.append(ReasoningPart(words, origin="chat"))
    parts.extend(_decode_content(message.get("content"), f"{path}.content"))
    if refusal := optional_text(message.get("refusal"), f"{path}.refusal"):
        parts.append(RefusalPart(refusal))
    for n, raw in enumerate(items(message.get("tool_calls"), f"{path}.tool_calls")):
        call = fields(raw, f"{path}.tool_calls[{n}]")
        function = fields(call.get("function"), f"{path}.tool_calls[{n}].function")
        parts.append(
            ToolCallPart(
                text(call.get("id"), f"{path}.tool_calls[{n}].id"),
                text(function.get("name"), f"{path}.tool_calls[{n}].function.name"),
                str(function.get("arguments") or ""),
            )
        )
    return Message(ROLES[role], tuple(parts))


def _decode_content(content: object, path: str) -> list[Part]:
    if content is None:
        return []
    if isinstance(content, str):
        return [TextPart(content)]
    parts: list[Part] = []
    for n, raw in enumerate(items(content, path)):
        part = fields(raw, f"{path}[{n}]")
        kind = part.get("type")
        if kind == "text":
            parts.append(TextPart(text(part.get("text"), f"{path}[{n}].text")))
        elif kind == "image_url":
            image = fields(part.get("image_url"), f"{path}[{n}].image_url")
            url = text(image.get("url"), f"{path}[{n}].image_url.url")
            parts.append(image_from_url(url, image.get("detail")))
        elif kind == "refusal":
            parts.append(RefusalPart(text(part.get("refusal"), f"{path}[{n}].refusal")))
        else:
            raise WireError(f"{path}[{n}]: a part of type {kind!r} can't be translated")
    return parts
