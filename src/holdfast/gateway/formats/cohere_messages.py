"""Cohere's turns, use and the end of an answer, whole and streamed, both ways.

In a stream contents and calls are numbered apart. Citations come while or after a text is told: a
text ends, for us, when something else begins or the message ends, so that they are with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from holdfast.gateway.formats.base import Failure, StreamFailure
from holdfast.gateway.formats.json_fields import (
    Json,
    WireError,
    count,
    details,
    dumps,
    fields,
    items,
    text,
)
from holdfast.gateway.formats.openai import image_from_url, image_url
from holdfast.gateway.formats.sse import event as sse
from holdfast.gateway.messages import (
    Citation,
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

# --- messages -------------------------------------------------------------------------------


def encode_message(message: Message) -> list[Json]:
    """A turn; each tool's answer is a message of its own, its pictures follow as the user's."""
    results = [part for part in message.parts if isinstance(part, ToolResultPart)]
    others = [part for part in message.parts if not isinstance(part, ToolResultPart)]
    encoded = [one for result in results for one in _encode_result(result)]
    if message.role == "assistant":
        return [*encoded, encode_reply_message(others, back=True)]
    if others or not results:
        role = "system" if message.role == "system" else "user"
        encoded.append({"role": role, "content": _encode_content(others)})
    return encoded


def _encode_content(parts: Sequence[Part]) -> object:
    blocks = [_encode_block(part) for part in parts]
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        return blocks[0]["text"]
    return blocks


def _encode_block(part: Part) -> Json:
    match part:
        case TextPart() | RefusalPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            image: Json = {"url": image_url(part)}
            return {
                "type": "image_url",
                "image_url": image | ({"detail": part.detail} if part.detail else {}),
            }
        case FilePart():
            raise WireError(
                f"a file of type {part.media_type!r} can't be translated: cohere has none"
            )
        case _:
            raise WireError(f"a {part.type} can't be what a user says")


def _encode_result(result: ToolResultPart) -> list[Json]:
    words = f"Error: {result.text}" if result.is_error else result.text
    encoded: list[Json] = [{"role": "tool", "tool_call_id": result.call_id, "content": words}]
    files = [part for part in result.content if not isinstance(part, TextPart)]
    if files:
        encoded.append({"role": "user", "content": _encode_content(files)})
    return encoded


def encode_reply_message(parts: Sequence[Part], *, back: bool = False) -> Json:
    """What the model said; `back`: to Cohere, which sees only its own thinking again."""
    calls = [part for part in parts if isinstance(part, ToolCallPart)]
    content: list[Json] = []
    citations: list[Json] = []
    plan = ""
    for part in parts:
        if isinstance(part, ReasoningPart):
            if part.text and (not back or part.origin == "cohere"):
                content.append({"type": "thinking", "thinking": part.text})
        elif isinstance(part, TextPart | RefusalPart) and part.text:
            if calls:
                plan += part.text
                continue
            if isinstance(part, TextPart):
                citations += [
                    encode_citation(one, part.text, len(content)) for one in part.citations
                ]
            content.append({"type": "text", "text": part.text})
    message: Json = {"role": "assistant"}
    if content:
        message["content"] = content
    if plan:
        message["tool_plan"] = plan
    if calls:
        message["tool_calls"] = [_encode_call(call) for call in calls]
    if citations:
        message["citations"] = citations
    return message


def _encode_call(call: ToolCallPart) -> Json:
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    return {"id": call.id, "type": "function", "function": function}


def decode_message(message: Json, path: str) -> Message:
    match message.get("role"):
        case "tool":
            return Message("tool", (_decode_result(message, path),))
        case "assistant":
            return Message("assistant", tuple(decode_reply_parts(message)))
        case "system" | "user" as role:
            return Message(role, tuple(_decode_content(message.get("content"), f"{path}.content")))
        case other:
            raise WireError(f"{path}.role: there is no role {other!r}")


def _decode_content(content: object, path: str) -> list[Part]:
    if isinstance(content, str):
        return [TextPart(content)]
    parts: list[Part] = []
    for n, raw in enumerate(items(content, path)):
        block = fields(raw, f"{path}[{n}]")
        match block.get("type"):
            case "text":
                parts.append(TextPart(text(block.get("text"), f"{path}[{n}].text")))
            case "image_url":
                image = fields(block.get("image_url"), f"{path}[{n}].image_url")
                url = text(image.get("url"), f"{path}[{n}].image_url.url")
                parts.append(image_from_url(url, image.get("detail")))
            case other:
                raise WireError(f"{path}[{n}]: a block of type {other!r} can't be translated")
    return parts


def _decode_result(message: Json, path: str) -> ToolResultPart:
    call = text(message.get("tool_call_id"), f"{path}.tool_call_id")
    content = message.get("content")
    if isinstance(content, str):
        return ToolResultPart(call, (TextPart(content),))
    pieces: list[TextPart] = []
    for n, raw in enumerate(items(content, f"{path}.content")):
        block = fields(raw, f"{path}.content[{n}]")
        if block.get("type") == "document":
            document = fields(block.get("document"), f"{path}.content[{n}].document")
            data = document.get("data")
            words = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
            pieces.append(TextPart(words))
        else:
            pieces.append(TextPart(text(block.get("text"), f"{path}.content[{n}].text")))
    return ToolResultPart(call, tuple(pieces))


def decode_reply_parts(message: Json) -> list[ReplyPart]:
    """Contents in order, the plan as text, then the calls."""
    parts: list[ReplyPart] = []
    places: dict[int, int] = {}
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for n, raw in enumerate(items(blocks, "content")):
        block = fields(raw, f"content[{n}]")
        places[n] = len(parts)
        if block.get("type") == "thinking":
            words = text(block.get("thinking"), f"content[{n}].thinking")
            parts.append(ReasoningPart(words, origin="cohere"))
        else:
            parts.append(TextPart(text(block.get("text"), f"content[{n}].text")))
    if plan := message.get("tool_plan"):
        parts.append(TextPart(text(plan, "tool_plan")))
    for raw in items(message.get("citations"), "citations"):
        found = fields(raw, "citations")
        at = places.get(count(found.get("content_index")))
        if at is not None and isinstance(said := parts[at], TextPart):
            parts[at] = replace(said, citations=(*said.citations, *decode_citation(found)))
    for n, raw in enumerate(items(message.get("tool_calls"), "tool_calls")):
        parts.append(_decode_call(fields(raw, f"tool_calls[{n}]"), f"tool_calls[{n}]"))
    return parts


def _decode_call(call: Json, path: str) -> ToolCallPart:
    function = fields(call.get("function"), f"{path}.function")
    return ToolCallPart(
        text(call.get("id"), f"{path}.id"),
        text(function.get("name"), f"{path}.function.name"),
        str(function.get("arguments") or ""),
    )


# --- citations, use, the end ----------------------------------------------------------------


def encode_citation(citation: Citation, words: str, content_index: int) -> Json:
    start = 0 if citation.start is None else citation.start
    end = len(words) if citation.end is None else citation.end
    if citation.origin == "cohere" and citation.own:
        return {**json.loads(citation.own), "content_index": content_index}
    document: Json = {
        name: value
        for name, value in (("url", citation.url), ("title", citation.title),
                            ("snippet", citation.quote))
        if value is not None
    }  # fmt: skip
    source: Json = {"type": "document", "document": document}
    if named := citation.source or citation.url:
        source["id"] = named
    return {
        "start": start, "end": end, "text": words[start:end], "sources": [source],
        "content_index": content_index, "type": "TEXT_CONTENT",
    }  # fmt: skip


def decode_citation(found: Json) -> list[Citation]:
    """One for each source; the first holds what Cohere said of all of them."""
    own: str | None = dumps(found).decode("utf-8", "replace")
    start, end = found.get("start"), found.get("end")
    decoded: list[Citation] = []
    sources = items(found.get("sources"), "citations.sources") or [{}]
    for raw in sources:
        source = fields(raw, "citations.sources")
        held = details(source.get("document") or source.get("tool_output"))
        decoded.append(
            Citation(
                url=_word(held.get("url")), title=_word(held.get("title")),
                quote=_word(held.get("snippet")), source=_word(source.get("id")),
                start=start if isinstance(start, int) else None,
                end=end if isinstance(end, int) else None,
                own=own, origin="cohere" if own else None,
            )
        )  # fmt: skip
        own = None
    return decoded


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def decode_usage(value: object) -> Usage | None:
    if not isinstance(value, dict):
        return None
    usage = cast(Json, value)
    billed, used = details(usage.get("billed_units")), details(usage.get("tokens"))
    if not billed and not used:
        return None
    counted = billed if "input_tokens" in billed or "output_tokens" in billed else used
    given = count(counted.get("input_tokens"))
    return Usage(
        input=given,
        output=count(counted.get("output_tokens")),
        cached=min(count(usage.get("cached_tokens")), given),
        searches=count(billed.get("search_units")),
    )


def encode_usage(usage: Usage) -> Json:
    counted = {"input_tokens": usage.input, "output_tokens": usage.output}
    return {"billed_units": counted, "tokens": counted, "cached_tokens": usage.cached}


_FINISH: dict[str, FinishReason] = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
    "ERROR_TOXIC": "content_filter",
}


def decode_finish(finish: str) -> FinishReason:
    if finish in ("ERROR", "TIMEOUT"):
        raise WireError(f"finish_reason is {finish}: the reply is not whole")
    return _FINISH.get(finish, "stop")


def encode_finish(finish: FinishReason, stop_sequence: str | None = None) -> str:
    if stop_sequence is not None:
        return "STOP_SEQUENCE"
    return {
        "length": "MAX_TOKENS", "tool_calls": "TOOL_CALL", "content_filter": "ERROR_TOXIC",
    }.get(finish, "COMPLETE")  # fmt: skip


# --- streams --------------------------------------------------------------------------------


class CohereDecoder:
    def __init__(self) -> None:
        self.last = False
        self._next = 0
        self._open: tuple[type[ReplyPart], int] | None = None
        self._call: int | None = None
        self._cited: list[Citation] = []

    def feed(self, data: Json) -> Iterator[Event]:
        kind = data.get("type")
        if kind is None and isinstance(data.get("message"), str):
            raise StreamFailure(Failure(str(data["message"])))
        delta = fields(data.get("delta") or {}, "delta")
        message = fields(delta.get("message") or {}, "delta.message")
        match kind:
            case "message-start":
                identity = data.get("id")
                yield Start(identity if isinstance(identity, str) else None, "")
            case "content-start" | "content-delta":
                yield from self._content(message.get("content"), kind == "content-start")
            case "tool-plan-delta":
                if plan := message.get("tool_plan"):
                    yield from self._grow(TextPart(""), text(plan, "tool_plan"))
            case "tool-call-start":
                yield from self._begin_call(fields(message.get("tool_calls"), "tool_calls"))
            case "tool-call-delta":
                call = fields(message.get("tool_calls"), "tool_calls")
                words = fields(call.get("function") or {}, "function").get("arguments")
                if words and self._call is not None:
                    yield PartDelta(self._call, text(words, "arguments"))
            case "tool-call-end":
                yield from self._close()
            case "citation-start":
                cited = message.get("citations")
                if isinstance(cited, dict):
                    self._cited += decode_citation(cast(Json, cited))
            case "message-end":
                yield from self._end(delta)
            case _:
                pass  # the ends of contents and citations tell nothing; others are to come

    def _content(self, content: object, begins: bool) -> Iterator[Event]:
        block = fields(content or {}, "content")
        if begins:
            yield from self._close()
        if words := block.get("thinking"):
            yield from self._grow(ReasoningPart(origin="cohere"), text(words, "thinking"))
        if words := block.get("text"):
            yield from self._grow(TextPart(""), text(words, "text"))

    def _grow(self, part: ReplyPart, words: str) -> Iterator[Event]:
        if self._open is None or self._open[0] is not type(part):
            yield from self._close()
            self._open, self._next = (type(part), self._next), self._next + 1
            yield PartStart(self._open[1], part)
        yield PartDelta(self._open[1], words)

    def _begin_call(self, call: Json) -> Iterator[Event]:
        yield from self._close()
        found = _decode_call(call, "tool_calls")
        self._call, self._next = self._next, self._next + 1
        yield PartStart(self._call, replace(found, arguments=""))
        if found.arguments:
            yield PartDelta(self._call, found.arguments)

    def _close(self) -> Iterator[Event]:
        if self._open is not None:
            kind, index = self._open
            cited = tuple(self._cited) if kind is TextPart else ()
            yield PartEnd(index, citations=cited)
            if cited:
                self._cited.clear()
            self._open = None
        if self._call is not None:
            yield PartEnd(self._call)
            self._call = None

    def _end(self, delta: Json) -> Iterator[Event]:
        finish = delta.get("finish_reason")
        if finish in ("ERROR", "TIMEOUT") or delta.get("error"):
            raise StreamFailure(Failure(str(delta.get("error") or finish)))
        yield from self._close()
        self.last = True
        finish = decode_finish(text(finish, "finish_reason"))
        yield End(finish, decode_usage(delta.get("usage")))

    def close(self) -> Iterator[Event]:
        if not self.last:
            raise WireError("the stream ended without a message-end")
        yield from ()


class CohereEncoder:
    """Writes an answer as events. A text is the plan once a call follows it; that can't be known
    while it is told, so texts are contents here, and clients put both together."""

    def __init__(self) -> None:
        self._parts: dict[int, ReplyPart] = {}
        self._said: dict[int, list[str]] = {}
        self._places: dict[int, int] = {}
        self._contents = self._calls = self._citations = 0

    def encode(self, event: Event) -> bytes:
        match event:
            case PartDelta(index, words):
                return self._delta(index, words)
            case Start():
                message: Json = {
                    "role": "assistant", "content": [], "tool_plan": "", "tool_calls": [],
                    "citations": [],
                }  # fmt: skip
                return _said("message-start", {"message": message}, id=event.id or "holdfast")
            case PartStart(index, part):
                return self._begin(index, part)
            case PartEnd():
                return self._finish(event)
            case End():
                delta: Json = {"finish_reason": encode_finish(event.finish, event.stop_sequence)}
                if event.usage:
                    delta["usage"] = encode_usage(event.usage)
                return _said("message-end", delta)

    def _begin(self, index: int, part: ReplyPart) -> bytes:
        self._parts[index], self._said[index] = part, []
        if isinstance(part, ToolCallPart):
            self._places[index], self._calls = self._calls, self._calls + 1
            call = _encode_call(part)
            call["function"]["arguments"] = part.arguments
            return _said("tool-call-start", {"message": {"tool_calls": call}},
                         index=self._places[index])  # fmt: skip
        self._places[index], self._contents = self._contents, self._contents + 1
        kind = "thinking" if isinstance(part, ReasoningPart) else "text"
        begun = _said("content-start", {"message": {"content": {"type": kind, kind: ""}}},
                      index=self._places[index])  # fmt: skip
        return begun + (self._delta(index, part.text) if part.text else b"")

    def _delta(self, index: int, words: str) -> bytes:
        part, place = self._parts[index], self._places[index]
        if isinstance(part, ToolCallPart):
            grown: Json = {"message": {"tool_calls": {"function": {"arguments": words}}}}
            return _said("tool-call-delta", grown, index=place)
        kind = "thinking" if isinstance(part, ReasoningPart) else "text"
        self._said[index].append(words)
        return _said("content-delta", {"message": {"content": {kind: words}}}, index=place)

    def _finish(self, end: PartEnd) -> bytes:
        part, place = self._parts[end.index], self._places[end.index]
        if isinstance(part, ToolCallPart):
            return _said("tool-call-end", index=place)
        told = b""
        words = "".join(self._said[end.index])
        for citation in end.citations:
            cited = {"message": {"citations": encode_citation(citation, words, place)}}
            told += _said("citation-start", cited, index=self._citations)
            told += _said("citation-end", index=self._citations)
            self._citations += 1
        return told + _said("content-end", index=place)


def _said(kind: str, delta: Json | None = None, **more: object) -> bytes:
    data: Json = {"type": kind, **more} | ({"delta": delta} if delta is not None else {})
    return sse(data, kind)
