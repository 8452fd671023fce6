"""The items of OpenAI responses, whole and streamed, both ways.

`response.completed` (or `.incomplete`) is the proof of a whole answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

from holdfast.gateway.formats import openai
from holdfast.gateway.formats.base import Failure, StreamFailure
from holdfast.gateway.formats.chat_messages import ROLES
from holdfast.gateway.formats.json_fields import (
    Json,
    WireError,
    count,
    details,
    fields,
    items,
    text,
)
from holdfast.gateway.formats.openai import image_from_url, image_url
from holdfast.gateway.formats.sse import event as sse
from holdfast.gateway.formats.translation import pack, unpack
from holdfast.gateway.messages import (
    FilePart,
    ImagePart,
    Message,
    Part,
    ReasoningPart,
    RefusalPart,
    ReplyPart,
    Request,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from holdfast.gateway.reply import (
    Assembler,
    Completion,
    End,
    Event,
    FinishReason,
    PartDelta,
    PartEnd,
    PartStart,
    Start,
    Usage,
)


def encode_input(messages: tuple[Message, ...]) -> list[Json]:
    """The turns as input items; instructions go elsewhere."""
    encoded: list[Json] = []
    for message in messages:
        if message.role == "system":
            continue
        content: list[Json] = []
        for part in message.parts:
            if isinstance(part, TextPart | ImagePart | FilePart | RefusalPart):
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


def _encode_file(part: FilePart) -> Json:
    if part.kind == "audio":
        raise WireError("a recording can't be translated: the responses format takes none")
    if part.file_id is not None:
        return {"type": "input_file", "file_id": part.file_id}
    if part.url is not None:
        return {"type": "input_file", "file_url": part.url}
    named = part.name or "file"
    return {"type": "input_file", "filename": named, "file_data": openai.file_data(part)}


def _decode_file(part: Json, path: str) -> FilePart:
    name = part.get("filename")
    if part.get("file_data") is not None:
        return openai.file_from_data(text(part["file_data"], f"{path}.file_data"), name)
    if part.get("file_url") is not None:
        return FilePart(url=text(part["file_url"], f"{path}.file_url"), name=name)
    return FilePart(file_id=text(part.get("file_id"), f"{path}.file_id"), name=name)


def _encode_content(part: TextPart | ImagePart | FilePart | RefusalPart, role: Role) -> Json:
    if isinstance(part, FilePart):
        return _encode_file(part)
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
        content = [
            part
            for part in _decode_content(output, path)
            if isinstance(part, TextPart | ImagePart | FilePart)
        ]
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
            case "input_file":
                parts.append(_decode_file(part, here))
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
    stem = item_stem(completion.id)
    return [encode_output_item(part, n, stem=stem) for n, part in enumerate(completion.parts)]


KEPT_HERE = "resp_hf_"
"""How the ids of answers begin that we keep for their clients to go on from."""


def item_stem(response_id: str | None) -> str:
    """What the ids of an answer's items have of the answer's id, if we keep it."""
    kept = response_id is not None and response_id.startswith(KEPT_HERE)
    return f"{response_id.removeprefix('resp_')}_" if kept and response_id else ""


def encode_output_item(
    part: ReplyPart, index: int, status: str = "completed", *, stem: str = ""
) -> Json:
    """One part as an item; each text is a message item of its own."""
    match part:
        case ToolCallPart():
            return {
                "type": "function_call",
                "id": (not stem and part.item) or f"fc_{stem}{index}",
                "call_id": part.id,
                "name": part.name,
                "arguments": part.arguments,
                "status": status,
            }
        case ReasoningPart():
            return {
                "type": "reasoning",
                "id": (not stem and part.item) or f"rs_{stem}{index}",
                "summary": [{"type": "summary_text", "text": part.text}] if part.text else [],
                "encrypted_content": pack(part, "responses") or part.encrypted,
            }
        case TextPart() | RefusalPart():
            content = [encode_content_part(part)] if part.text or status == "completed" else []
            return {
                "type": "message",
                "id": f"msg_{stem}{index}",
                "role": "assistant",
                "status": status,
                "content": content,
            }


def encode_content_part(part: TextPart | RefusalPart) -> Json:
    if isinstance(part, RefusalPart):
        return {"type": "refusal", "refusal": part.text}
    return {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}


def decode_usage(response: Json) -> Usage | None:
    """What an answer used; the searches that it made are among its items."""
    value = response.get("usage")
    if not isinstance(value, dict) or "output_tokens" not in value:
        return None
    usage = cast(Json, value)
    output: Any = response.get("output")
    made = [
        cast(Json, one)
        for one in (cast("list[Any]", output) if isinstance(output, list) else ())
        if isinstance(one, dict) and cast(Json, one).get("type") == "web_search_call"
    ]
    inward = details(usage.get("input_tokens_details"))
    outward = details(usage.get("output_tokens_details"))
    return Usage(
        input=count(usage.get("input_tokens")),
        output=count(usage.get("output_tokens")),
        cached=count(inward.get("cached_tokens")),
        cache_write=count(inward.get("cache_write_tokens")),
        reasoning=count(outward.get("reasoning_tokens")),
        searches=len(made),
    )


def encode_usage(usage: Usage) -> Json:
    inward = {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_write}
    return {
        "input_tokens": usage.input,
        "input_tokens_details": inward,
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.total,
    }


def decode_finish(body: Json, parts: Sequence[ReplyPart]) -> FinishReason:
    if body.get("status") == "incomplete":
        details = fields(body.get("incomplete_details") or {}, "incomplete_details")
        return "content_filter" if details.get("reason") == "content_filter" else "length"
    if any(isinstance(part, ToolCallPart) for part in parts):
        return "tool_calls"
    return "refusal" if any(isinstance(part, RefusalPart) for part in parts) else "stop"


_TEXT_PLACE: Json = {"content_index": 0, "logprobs": []}


class ResponsesDecoder:
    def __init__(self) -> None:
        self.last = False
        self._indices: dict[tuple[Any, Any], int] = {}
        self._summaries: dict[int, int] = {}
        self._grown: set[int] = set()
        self._end: End | None = None

    def feed(self, data: Json) -> Iterator[Event]:
        kind = data.get("type")
        match kind:
            case "response.output_text.delta" | "response.refusal.delta":
                yield from self._text(data, refusal=kind == "response.refusal.delta")
            case "response.function_call_arguments.delta":
                index = self._index(data, "item")
                self._grown.add(index)
                yield PartDelta(index, text(data.get("delta"), "delta"))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                yield from self._reasoning(data)
            case "response.output_item.added":
                yield from self._added(data)
            case "response.output_item.done":
                yield from self._finished(data)
            case "response.content_part.done":
                key = (data.get("output_index"), data.get("content_index"))
                if key in self._indices:
                    yield PartEnd(self._indices[key])
            case "response.created":
                response = fields(data.get("response"), "response")
                yield Start(response.get("id"), str(response.get("model") or ""))
            case "response.completed" | "response.incomplete":
                self._complete(fields(data.get("response"), "response"))
            case "response.failed":
                response = fields(data.get("response"), "response")
                raise StreamFailure(openai.decode(response) or Failure("it failed"))
            case "error":
                raise StreamFailure(openai.decode(data) or Failure(str(data)))
            case _:
                pass  # progress of the provider's own tools, and later additions

    def _index(self, data: Json, content: object) -> int:
        key = (data.get("output_index"), content)
        if key not in self._indices:
            raise WireError(f"{data.get('type')} for an item that never started")
        return self._indices[key]

    def _begin(self, key: tuple[Any, Any], part: ReplyPart) -> PartStart:
        index = self._indices[key] = len(self._indices)
        return PartStart(index, part)

    def _text(self, data: Json, *, refusal: bool) -> Iterator[Event]:
        key = (data.get("output_index"), data.get("content_index"))
        if key not in self._indices:
            yield self._begin(key, RefusalPart("") if refusal else TextPart(""))
        yield PartDelta(self._indices[key], text(data.get("delta"), "delta"))

    def _reasoning(self, data: Json) -> Iterator[Event]:
        index = self._index(data, "item")
        number = data.get("summary_index", data.get("content_index", 0))
        if self._summaries.setdefault(index, number) != number:
            self._summaries[index] = number
            yield PartDelta(index, "\n")
        yield PartDelta(index, text(data.get("delta"), "delta"))

    def _added(self, data: Json) -> Iterator[Event]:
        item = fields(data.get("item"), "item")
        key = (data.get("output_index"), "item")
        if item.get("type") == "function_call":
            call = text(item.get("call_id"), "item.call_id")
            name = text(item.get("name"), "item.name")
            yield self._begin(key, ToolCallPart(call, name, item=item.get("id")))
        elif item.get("type") == "reasoning":
            yield self._begin(key, ReasoningPart(item=item.get("id"), origin="responses"))

    def _finished(self, data: Json) -> Iterator[Event]:
        key = (data.get("output_index"), "item")
        if key not in self._indices:
            return
        index, item = self._indices[key], fields(data.get("item"), "item")
        if item.get("type") == "function_call" and index not in self._grown:
            yield PartDelta(index, str(item.get("arguments") or ""))
        yield PartEnd(index, encrypted=item.get("encrypted_content"))

    def _complete(self, response: Json) -> None:
        parts = list(decode_output(items(response.get("output"), "response.output")))
        usage = decode_usage(response)
        self._end = End(decode_finish(response, parts), usage)
        self.last = True

    def close(self) -> Iterator[Event]:
        if self._end is None:
            raise WireError("the stream ended without response.completed")
        yield self._end


class _EncodeResponse(Protocol):
    def __call__(
        self,
        identity: str | None,
        model: str,
        request: Request | None,
        *,
        output: list[Json],
        completion: Completion | None,
    ) -> Json: ...


class ResponsesEncoder:
    def __init__(self, request: Request, encode_response: _EncodeResponse) -> None:
        self._request, self._encode_response = request, encode_response
        self._assembler = Assembler()
        self._number = 0
        self._parts: dict[int, ReplyPart] = {}
        self._texts: dict[int, list[str]] = {}
        self._done: dict[int, Json] = {}
        self._id: str | None = None
        self._model = ""

    def encode(self, event: Event) -> bytes:
        self._assembler.add(event)
        match event:
            case PartDelta(index, words):
                self._texts[index].append(words)
                return self._delta(index, words)
            case PartStart(index, part):
                return self._start(index, part)
            case PartEnd():
                return self._end_part(event)
            case Start():
                self._id, self._model = event.id, event.model
                blank = self._response(None, [])
                created = self._event("response.created", response=blank)
                return created + self._event("response.in_progress", response=blank)
            case End():
                return self._end()

    def _start(self, index: int, part: ReplyPart) -> bytes:
        self._parts[index] = part
        self._texts[index] = []
        item = encode_output_item(part, index, "in_progress", stem=item_stem(self._id))
        out = self._event("response.output_item.added", output_index=index, item=item)
        if isinstance(part, TextPart | RefusalPart):
            out += self._part_event("response.content_part.added", index, encode_content_part(part))
        elif isinstance(part, ReasoningPart):
            blank = {"type": "summary_text", "text": ""}
            out += self._summary_event("response.reasoning_summary_part.added", index, part=blank)
        return out

    def _delta(self, index: int, words: str) -> bytes:
        part, item = self._parts[index], self._item_id(index)
        where: Json = {"item_id": item, "output_index": index}
        more: Json
        match part:
            case TextPart():
                kind, more = "response.output_text.delta", _TEXT_PLACE
            case RefusalPart():
                kind, more = "response.refusal.delta", {"content_index": 0}
            case ReasoningPart():
                kind, more = "response.reasoning_summary_text.delta", {"summary_index": 0}
            case ToolCallPart():
                kind, more = "response.function_call_arguments.delta", {}
        return self._event(kind, **where, **more, delta=words)

    def _end_part(self, end: PartEnd) -> bytes:
        index, part = end.index, self._parts[end.index]
        if index in self._done:
            return b""
        whole = "".join(self._texts[index])
        item = self._item_id(index)
        match part:
            case TextPart():
                part = replace(part, text=part.text + whole)
                out = self._event("response.output_text.done", item_id=item, output_index=index,
                                  content_index=0, text=part.text, logprobs=[])  # fmt: skip
                content = encode_content_part(part)
                out += self._part_event("response.content_part.done", index, content)
            case RefusalPart():
                part = replace(part, text=part.text + whole)
                out = self._event("response.refusal.done", item_id=item, output_index=index,
                                  content_index=0, refusal=part.text)  # fmt: skip
                content = encode_content_part(part)
                out += self._part_event("response.content_part.done", index, content)
            case ReasoningPart():
                part = replace(
                    part,
                    text=part.text + whole,
                    signature=end.signature or part.signature,
                    encrypted=end.encrypted or part.encrypted,
                )
                out = self._summary_event(
                    "response.reasoning_summary_text.done", index, text=part.text
                )
                summary = {"type": "summary_text", "text": part.text}
                out += self._summary_event(
                    "response.reasoning_summary_part.done", index, part=summary
                )
            case ToolCallPart():
                part = replace(part, arguments=part.arguments + whole)
                out = self._event("response.function_call_arguments.done", item_id=item,
                                  output_index=index, name=part.name,
                                  arguments=part.arguments)  # fmt: skip
        self._done[index] = encode_output_item(part, index, stem=item_stem(self._id))
        return out + self._event(
            "response.output_item.done", output_index=index, item=self._done[index]
        )

    def _end(self) -> bytes:
        out = b""
        for index in self._parts:
            out += self._end_part(PartEnd(index))
        output = [self._done[index] for index in sorted(self._done)]
        response = self._response(self._assembler.completion(), output)
        return out + self._event(f"response.{response['status']}", response=response)

    def _response(self, completion: Completion | None, output: list[Json]) -> Json:
        return self._encode_response(
            self._id, self._model, self._request, output=output, completion=completion
        )

    def _item_id(self, index: int) -> str:
        return encode_output_item(self._parts[index], index, stem=item_stem(self._id))["id"]

    def _part_event(self, kind: str, index: int, part: Json) -> bytes:
        item = self._item_id(index)
        return self._event(kind, item_id=item, output_index=index, content_index=0, part=part)

    def _summary_event(self, kind: str, index: int, **more: Any) -> bytes:
        item = self._item_id(index)
        return self._event(kind, item_id=item, output_index=index, summary_index=0, **more)

    def _event(self, kind: str, **data: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return sse({"type": kind, "sequence_number": number, **data}, kind)
