"""Messages of chat completions, both ways: parts, content, usage."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from typing import Any, cast

from holdfast.gateway.formats.json_fields import (
    Json,
    WireError,
    count,
    details,
    fields,
    items,
    optional_text,
    text,
)
from holdfast.gateway.formats.openai import image_from_url, image_url
from holdfast.gateway.messages import (
    ImagePart,
    Message,
    Part,
    ReasoningPart,
    RefusalPart,
    ReplyPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from holdfast.gateway.reply import Usage


def decode_usage(value: object) -> Usage | None:
    """The usage block, or None if there is none worth the name."""
    if not isinstance(value, dict):
        return None
    usage = fields(value, "usage")  # pyright: ignore[reportUnknownArgumentType]
    if "prompt_tokens" not in usage and "completion_tokens" not in usage:
        return None
    inward = details(usage.get("prompt_tokens_details"))
    outward = details(usage.get("completion_tokens_details"))
    cached = count(inward.get("cached_tokens")) or count(usage.get("prompt_cache_hit_tokens"))
    given, made = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    # Gemini and Grok leave the tokens of thinking out of the completion; the total has them.
    apart = max(count(usage.get("total_tokens")) - given - made, 0)
    return Usage(
        input=given,
        output=made + apart,
        cached=cached,
        cache_write=count(inward.get("cache_write_tokens")),
        reasoning=max(count(outward.get("reasoning_tokens")), apart),
    )


def encode_usage(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


_MARK = "__sig_"


def content_pieces(content: object, path: str) -> Iterator[tuple[type[ReplyPart], str]]:
    """The content of an answer, a text or a list of parts, as kinds and words."""
    if not content:
        return
    if isinstance(content, str):
        yield TextPart, content
        return
    for n, raw in enumerate(items(content, path)):
        part = fields(raw, f"{path}[{n}]")
        if part.get("type") == "thinking":
            for inner in _texts(part.get("thinking")):
                yield ReasoningPart, inner
        elif part.get("text"):
            yield TextPart, text(part["text"], f"{path}[{n}].text")


def _texts(thinking: object) -> Iterator[str]:
    if isinstance(thinking, str):
        yield thinking
        return
    for one in items(thinking, "thinking"):
        words = fields(one, "thinking").get("text")
        if isinstance(words, str) and words:
            yield words


def signed_id(identity: str, call: Json) -> str:
    """The call's id, with its signature if it has one."""
    signature = _of(_of(call.get("extra_content")).get("google")).get("thought_signature")
    if not isinstance(signature, str) or not signature:
        return identity
    return identity + _MARK + base64.urlsafe_b64encode(signature.encode()).decode().rstrip("=")


def signed_call(identity: str) -> Json:
    """The id, and the signature that was put into it, as the provider sent them."""
    plain, mark, packed = identity.partition(_MARK)
    if not mark:
        return {"id": identity}
    try:
        signature = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)).decode()
    except (ValueError, binascii.Error):
        return {"id": identity}
    return {"id": plain, "extra_content": {"google": {"thought_signature": signature}}}


def plain_id(identity: str) -> str:
    """The id as the provider knows it."""
    return str(signed_call(identity)["id"])


def _of(value: Any) -> Json:
    return cast(Json, value) if isinstance(value, dict) else {}


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
    if role == "assistant":
        return _encode_assistant(parts)
    visible = [part for part in parts if isinstance(part, TextPart | ImagePart)]
    body: Json = {"role": "user" if role == "tool" else role}
    if len(visible) == 1 and isinstance(visible[0], TextPart):
        body["content"] = visible[0].text
    else:
        body["content"] = [_encode_content(part) for part in visible]
    return body


def _encode_assistant(parts: Sequence[Part]) -> Json:
    calls = [part for part in parts if isinstance(part, ToolCallPart)]
    refusals = [part.text for part in parts if isinstance(part, RefusalPart)]
    words = "".join(part.text for part in parts if isinstance(part, TextPart))
    body: Json = {"role": "assistant", "content": words or None}
    reasoning = "".join(
        part.text for part in parts if isinstance(part, ReasoningPart) and part.origin == "chat"
    )
    if details := reasoning_details(parts):
        body["reasoning_details"] = details
    elif reasoning and calls:
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
    return body


def reasoning_details(parts: Sequence[Part]) -> list[Any]:
    """OpenRouter's account of the reasoning, which it wants back as it was, signatures and all."""
    found: list[Any] = []
    for part in parts:
        if isinstance(part, ReasoningPart) and part.origin == "chat" and part.encrypted:
            try:
                kept: Any = json.loads(part.encrypted)
            except ValueError:
                continue  # a client's own, not ours
            found.extend(cast("list[Any]", kept) if isinstance(kept, list) else ())
    return found


def packed_details(details: object) -> str | None:
    """OpenRouter's account of the reasoning as text to keep; None if there is none."""
    if not isinstance(details, list) or not details:
        return None
    return json.dumps(details, separators=(",", ":"))


class DetailsCollector:
    """Puts the pieces of a streamed account together: text grows, what else comes is added."""

    def __init__(self) -> None:
        self._found: list[dict[str, Any]] = []

    def add(self, pieces: object) -> None:
        if not isinstance(pieces, list):
            return
        for each in cast("list[Any]", pieces):
            if not isinstance(each, dict):
                continue
            piece = cast("dict[str, Any]", each)
            last = self._found[-1] if self._found else {}
            if not last or any(piece.get(name) != last.get(name) for name in ("type", "index")):
                self._found.append(dict(piece))
                continue
            for name, value in piece.items():
                grows = name in ("text", "summary", "data") and isinstance(value, str)
                before = last.get(name)
                if grows and isinstance(before, str):
                    last[name] = before + value
                elif value is not None:
                    last[name] = value

    def take(self) -> str | None:
        """What was collected since the last time, as text to keep."""
        found, self._found = self._found, []
        return packed_details(found)


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
