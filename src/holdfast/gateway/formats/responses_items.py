"""The items of OpenAI responses, as input and as output, both ways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.gateway.formats.chat_messages import ROLES
from holdfast.gateway.formats.json_fields import Json, WireError, fields, items, text
from holdfast.gateway.formats.openai import image_from_url, image_url
from holdfast.gateway.formats.reasoning import pack, unpack
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
from holdfast.gateway.reply import Completion


def encode_input(messages: tuple[Message, ...]) -> list[Json]:
    """The turns as input items; instructions go elsewhere."""
    encoded: list[Json] = []
    for message in messages:
        if message.role == "system":
            continue
        content: list[Json] = []
        for part in message.parts:
            if isinstance(part, TextPart | ImagePart | RefusalPart):
                content.append(_encode_content(part, message.role))
                continue
            if content:
                encoded.append({"role": _role(message.role), "content": content})
                content = []
            item = _encode_item(part)
            if item is not None:
                encoded.append(item)
        if content:
            encoded.append({"role": _role(message.role), "content": content})
    return encoded


def _role(role: Role) -> str:
    return "assistant" if role == "assistant" else "user"


def _encode_content(part: TextPart | ImagePart | RefusalPart, role: Role) -> Json:
    if isinstance(part, TextPart):
        return {"type": "output_text" if role == "assistant" else "input_text", "text": part.text}
    if isinstance(part, RefusalPart):
        return {"type": "refusal", "refusal": part.text}
    return {"type": "input_image", "image_url": image_url(part), "detail": part.detail or "auto"}


def _encode_item(part: ToolCallPart | ToolResultPart | ReasoningPart) -> Json | None:
    if isinstance(part, ToolCallPart):
        item: Json = {
            "type": "function_call",
            "call_id": part.id,
            "name": part.name,
            "arguments": part.arguments or "{}",
        }
        return item | ({"id": part.item} if part.item else {})
    if isinstance(part, ToolResultPart):
        output: Any = [_encode_content(piece, "user") for piece in part.content]
        if all(isinstance(piece, TextPart) for piece in part.content):
            output = f"Error: {part.text}" if part.is_error else part.text
        return {"type": "function_call_output", "call_id": part.call_id, "output": output}
    if part.origin != "responses" or not part.encrypted:
        return None  # reasoning that is not theirs, or that they could not read again
    summary = [{"type": "summary_text", "text": part.text}] if part.text else []
    item = {"type": "reasoning", "summary": summary, "encrypted_content": part.encrypted}
    return item | ({"id": part.item} if part.item else {})


def decode_input(given: list[Any]) -> tuple[Message, ...]:
    """Input items as turns; neighbouring items of the assistant make one turn."""
    turns: list[Message] = []
    for n, raw in enumerate(given):
        message = _decode_item(fields(raw, f"input[{n}]"), f"input[{n}]")
        last = turns[-1] if turns else None
        if last and last.role == message.role and message.role in ("assistant", "tool"):
            turns[-1] = Message(last.role, (*last.parts, *message.parts))
        else:
            turns.append(message)
    return tuple(turns)


def _decode_item(item: Json, path: str) -> Message:
    kind = item.get("type") or "message"
    if kind == "message":
        role = text(item.get("role"), f"{path}.role")
        if role not in ROLES:
            raise WireError(f"{path}.role: there is no role {role!r}")
        return Message(ROLES[role], tuple(_decode_content(item.get("content"), path)))
    if kind == "function_call":
        return Message("assistant", (_decode_call(item, path),))
    if kind == "function_call_output":
        output = item.get("output")
        content = [p for p in _decode_content(output, path) if isinstance(p, TextPart | ImagePart)]
        call = text(item.get("call_id"), f"{path}.call_id")
        return Message("tool", (ToolResultPart(call, tuple(content)),))
    if kind == "reasoning":
        return Message("assistant", (_decode_reasoning(item),))
    raise WireError(f"{path}: an item of type {kind!r} can't be translated")


def _decode_content(content: object, path: str) -> list[Part]:
    if isinstance(content, str):
        return [TextPart(content)]
    parts: list[Part] = []
    for n, raw in enumerate(items(content, f"{path}.content")):
        part, here = fields(raw, f"{path}.content[{n}]"), f"{path}.content[{n}]"
        match part.get("type"):
            case "input_text" | "output_text" | "text":
                parts.append(TextPart(text(part.get("text"), f"{here}.text")))
            case "input_image":
                url = text(part.get("image_url"), f"{here}.image_url")
                parts.append(image_from_url(url, part.get("detail")))
            case "refusal":
                parts.append(RefusalPart(text(part.get("refusal"), f"{here}.refusal")))
            case other:
                raise WireError(f"{here}: a part of type {other!r} can't be translated")
    return parts


def _decode_call(item: Json, path: str) -> ToolCallPart:
    return ToolCallPart(
        id=text(item.get("call_id"), f"{path}.call_id"),
        name=text(item.get("name"), f"{path}.name"),
        arguments=str(item.get("arguments") or ""),
        item=item.get("id"),
    )


def _decode_reasoning(item: Json) -> ReasoningPart:
    if (foreign := unpack(item.get("encrypted_content"))) is not None:
        return foreign
    pieces = [*items(item.get("summary"), "summary"), *items(item.get("content"), "content")]
    words = "\n".join(str(fields(piece, "summary").get("text") or "") for piece in pieces)
    return ReasoningPart(
        words, encrypted=item.get("encrypted_content"), item=item.get("id"), origin="responses"
    )


def decode_output(output: list[Any]) -> Iterator[ReplyPart]:
    """The parts of an answer; items of the provider's own tools have no canonical form."""
    for n, raw in enumerate(output):
        item, path = fields(raw, f"output[{n}]"), f"output[{n}]"
        match item.get("type"):
            case "message":
                for part in _decode_content(item.get("content"), path):
                    if isinstance(part, TextPart | RefusalPart):
                        yield part
            case "function_call":
                yield _decode_call(item, path)
            case "reasoning":
                yield _decode_reasoning(item)
            case _:
                pass


def encode_output(completion: Completion) -> list[Json]:
    """A whole answer as output items."""
    return [encode_output_item(part, n) for n, part in enumerate(completion.parts)]


def encode_output_item(part: ReplyPart, index: int, status: str = "completed") -> Json:
    """One part as an item; each text is a message item of its own."""
    match part:
        case ToolCallPart():
            return {
                "type": "function_call",
                "id": part.item or f"fc_{index}",
                "call_id": part.id,
                "name": part.name,
                "arguments": part.arguments,
                "status": status,
            }
        case ReasoningPart():
            return {
                "type": "reasoning",
                "id": part.item or f"rs_{index}",
                "summary": [{"type": "summary_text", "text": part.text}] if part.text else [],
                "encrypted_content": pack(part, "responses") or part.encrypted,
            }
        case TextPart() | RefusalPart():
            content = [encode_content_part(part)] if part.text or status == "completed" else []
            return {
                "type": "message",
                "id": f"msg_{index}",
                "role": "assistant",
                "status": status,
                "content": content,
            }


def encode_content_part(part: TextPart | RefusalPart) -> Json:
    if isinstance(part, RefusalPart):
        return {"type": "refusal", "refusal": part.text}
    return {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}
