"""Messages of chat completions, whole and streamed, both ways: parts, content, usage.

A stream has no part boundaries: a part starts with its first delta and ends when another kind
begins. `finish_reason` is the proof of a whole answer; `[DONE]` alone is not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

from holdfast.gateway.formats import openai
from holdfast.gateway.formats.base import Failure, StreamFailure
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
from holdfast.gateway.formats.sse import DONE, event
from holdfast.gateway.formats.translation import with_signature, without_signature
from holdfast.gateway.messages import (
    FilePart,
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
    return with_signature(
        identity, _of(_of(call.get("extra_content")).get("google")).get("thought_signature")
    )


def signed_call(identity: str) -> Json:
    """The id, and the signature that was put into it, as the provider sent them."""
    plain, signature = without_signature(identity)
    if signature is None:
        return {"id": plain}
    return {"id": plain, "extra_content": {"google": {"thought_signature": signature}}}


def plain_id(identity: str) -> str:
    """The id as the provider knows it."""
    return without_signature(identity)[0]


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
    visible = [part for part in parts if isinstance(part, TextPart | ImagePart | FilePart)]
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


def _encode_content(part: TextPart | ImagePart | FilePart) -> Json:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, FilePart):
        return _encode_file(part)
    image: Json = {"url": image_url(part)}
    if part.detail:
        image["detail"] = part.detail
    return {"type": "image_url", "image_url": image}


def _encode_file(part: FilePart) -> Json:
    if part.data is not None and part.kind == "audio":
        sound = {"data": part.data, "format": openai.sound_format(part)}
        return {"type": "input_audio", "input_audio": sound}
    if part.file_id is not None:
        return {"type": "file", "file": {"file_id": part.file_id}}
    if part.data is None:
        raise WireError("a file's URL can't be translated: chat completions take its bytes only")
    named = part.name or "file"
    return {"type": "file", "file": {"filename": named, "file_data": openai.file_data(part)}}


def _encode_result(result: ToolResultPart) -> list[Json]:
    words = f"Error: {result.text}" if result.is_error else result.text
    encoded: list[Json] = [
        {"role": "tool", "tool_call_id": plain_id(result.call_id), "content": words}
    ]
    files = [part for part in result.content if not isinstance(part, TextPart)]
    if files:  # a tool message holds text only; pictures and files follow as the user's
        encoded.append({"role": "user", "content": [_encode_content(part) for part in files]})
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
        visible = tuple(
            part for part in content if isinstance(part, TextPart | ImagePart | FilePart)
        )
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
        elif kind == "file":
            parts.append(_decode_file(fields(part.get("file"), f"{path}[{n}].file"), path))
        elif kind == "input_audio":
            sound = fields(part.get("input_audio"), f"{path}[{n}].input_audio")
            data = text(sound.get("data"), f"{path}[{n}].input_audio.data")
            parts.append(FilePart(data=data, media_type=f"audio/{sound.get('format') or 'wav'}"))
        else:
            raise WireError(f"{path}[{n}]: a part of type {kind!r} can't be translated")
    return parts


_KINDS: dict[str, type[ReplyPart]] = {
    "reasoning_content": ReasoningPart,
    "reasoning": ReasoningPart,
    "content": TextPart,
    "refusal": RefusalPart,
}


def _decode_file(file: Json, path: str) -> FilePart:
    name = optional_text(file.get("filename"), f"{path}.file.filename")
    if file.get("file_data") is not None:
        return openai.file_from_data(text(file["file_data"], f"{path}.file.file_data"), name)
    return FilePart(file_id=text(file.get("file_id"), f"{path}.file.file_id"), name=name)


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
    last = False
    """The usage comes after `finish_reason`: only `[DONE]` or the end of the stream closes it."""

    def __init__(self) -> None:
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
