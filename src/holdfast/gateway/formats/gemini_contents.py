"""Gemini's contents: parts, use and the end of an answer, whole and streamed, both ways.

A part may carry a signature of the thinking before it, which the model wants back with that part:
a call's travels in its id, a text's as reasoning without words. Calls need not have ids there;
those without one get one made of the answer's id, so that no two of a conversation are the same.
A stream has no part boundaries and no end mark: `finishReason` is the proof of a whole answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from holdfast.gateway.formats.base import Failure, StreamFailure
from holdfast.gateway.formats.json_fields import Json, WireError, count, fields, items, text
from holdfast.gateway.formats.sse import event as sse
from holdfast.gateway.formats.translation import with_signature, without_signature
from holdfast.gateway.messages import (
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

# --- messages -------------------------------------------------------------------------------


def encode_system(messages: tuple[Message, ...]) -> Json | None:
    """All system messages, gathered: Gemini keeps instructions apart from the turns."""
    parts = [
        {"text": part.text}
        for message in messages
        if message.role == "system"
        for part in message.parts
        if isinstance(part, TextPart) and part.text
    ]
    return {"parts": parts} if parts else None


def encode_contents(messages: tuple[Message, ...]) -> list[Json]:
    """The turns; neighbours of one role become one turn. A tool's answer needs its name."""
    names = {
        part.id: part.name
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCallPart)
    }
    turns: list[Json] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "model" if message.role == "assistant" else "user"
        parts = [one for part in message.parts for one in _encode_part(part, names)]
        if not parts:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["parts"].extend(parts)
        else:
            turns.append({"role": role, "parts": parts})
    return turns


def _encode_part(part: Part, names: dict[str, str]) -> list[Json]:
    match part:
        case TextPart():
            return [{"text": part.text}] if part.text else []
        case ImagePart() | FilePart():
            return [encode_media(part)]
        case ToolCallPart():
            return [encode_call(part)]
        case ToolResultPart():
            return _encode_result(part, names)
        case ReasoningPart():
            if part.origin != "gemini" or not part.signature:
                return []  # thoughts without a signature are for reading
            return [{"text": "", "thoughtSignature": part.signature}]
        case RefusalPart():
            return [{"text": part.text}]


def encode_media(part: ImagePart | FilePart) -> Json:
    kind = part.media_type or ("image/png" if isinstance(part, ImagePart) else "application/pdf")
    if part.data is not None:
        return {"inlineData": {"mimeType": kind, "data": part.data}}
    kept = part.file_id if isinstance(part, FilePart) else None
    place: Json = {"fileUri": part.url or kept or ""}
    if part.media_type:
        place["mimeType"] = part.media_type
    return {"fileData": place}


def encode_call(part: ToolCallPart) -> Json:
    identity, signature = without_signature(part.id)
    try:
        given = json.loads(part.arguments or "{}")
    except ValueError:
        given = {"_unparsed": part.arguments}
    call: Json = {"name": part.name, "args": given}
    if not identity.startswith(_MADE):
        call["id"] = identity
    return {"functionCall": call} | ({"thoughtSignature": signature} if signature else {})


def _encode_result(part: ToolResultPart, names: dict[str, str]) -> list[Json]:
    identity = without_signature(part.call_id)[0]
    name = names.get(part.call_id) or names.get(identity) or identity
    words = part.text
    try:
        parsed: Any = json.loads(words)
    except ValueError:
        parsed = None
    said: Json = cast(Json, parsed) if isinstance(parsed, dict) else {"result": words}
    answer: Json = {"name": name, "response": {"error": words} if part.is_error else said}
    if not identity.startswith(_MADE):
        answer["id"] = identity
    files = [encode_media(one) for one in part.content if not isinstance(one, TextPart)]
    return [{"functionResponse": answer}, *files]


def decode_contents(contents: Sequence[Any]) -> tuple[Message, ...]:
    """A client's turns. Calls without ids are matched to their answers by name, in order."""
    if not contents:
        raise WireError("contents is empty")
    matched: dict[str, list[str]] = {}
    decoded: list[Message] = []
    for n, raw in enumerate(contents):
        turn = fields(raw, f"contents[{n}]")
        role = turn.get("role") or "user"
        if role not in ("user", "model", "function"):
            raise WireError(f"contents[{n}].role: there is no role {role!r}")
        parts = [
            part
            for m, one in enumerate(items(turn.get("parts"), f"contents[{n}].parts"))
            if (
                part := _decode_part(
                    fields(one, f"contents[{n}].parts[{m}]"), f"contents[{n}].parts[{m}]", (n, m),
                    matched,
                )
            )
            is not None
        ]  # fmt: skip
        if role == "model":
            decoded.append(Message("assistant", tuple(parts)))
            continue
        results = tuple(part for part in parts if isinstance(part, ToolResultPart))
        others = tuple(part for part in parts if not isinstance(part, ToolResultPart))
        if results:
            decoded.append(Message("tool", results))
        if others or not results:
            decoded.append(Message("user", others))
    return tuple(decoded)


def _decode_part(
    part: Json, path: str, place: tuple[int, int], matched: dict[str, list[str]]
) -> Part | None:
    if "functionResponse" in part:
        return _decode_result(fields(part["functionResponse"], f"{path}.functionResponse"), matched)
    if "functionCall" in part:
        found = _decode_call(part, path, f"{place[0]}-{place[1]}")
        matched.setdefault(found.name, []).append(found.id)
        return found
    if "inlineData" in part or "fileData" in part:
        return _decode_media(part, path)
    if "text" in part:
        words = text(part["text"], f"{path}.text")
        signature = part.get("thoughtSignature")
        if part.get("thought"):
            return ReasoningPart(words, signature, origin="gemini")
        if not words and isinstance(signature, str):
            return ReasoningPart(signature=signature, origin="gemini")
        return TextPart(words)
    named = next(iter(part), "nothing")
    raise WireError(f"{path}: a part with {named!r} can't be translated")


def _decode_media(part: Json, path: str) -> ImagePart | FilePart:
    if "inlineData" in part:
        blob = fields(part["inlineData"], f"{path}.inlineData")
        kind = text(blob.get("mimeType"), f"{path}.inlineData.mimeType")
        data = text(blob.get("data"), f"{path}.inlineData.data")
        # The format takes both alphabets of base64; the others take the plain one.
        data = data.replace("-", "+").replace("_", "/")
        if kind.startswith("image/"):
            return ImagePart(data=data, media_type=kind)
        return FilePart(data=data, media_type=kind, name=blob.get("displayName"))
    place = fields(part["fileData"], f"{path}.fileData")
    url = text(place.get("fileUri"), f"{path}.fileData.fileUri")
    kind = place.get("mimeType")
    if isinstance(kind, str) and kind.startswith("image/"):
        return ImagePart(url=url, media_type=kind)
    return FilePart(url=url, media_type=kind, name=place.get("displayName"))


def _decode_result(answer: Json, matched: dict[str, list[str]]) -> ToolResultPart:
    name = text(answer.get("name"), "functionResponse.name")
    given = answer.get("id")
    waiting = matched.get(name) or []
    if isinstance(given, str) and given:
        full = next((one for one in waiting if without_signature(one)[0] == given), given)
        identity = full
    else:
        identity = waiting[0] if waiting else f"{_MADE}{name}"
    if identity in waiting:
        waiting.remove(identity)
    said = fields(answer.get("response") or {}, "functionResponse.response")
    failed = "error" in said and len(said) == 1
    only = said.get("error") if failed else said.get("result", said.get("output"))
    alone = isinstance(only, str) and len(said) == 1
    plain = cast(str, only) if alone else json.dumps(said, ensure_ascii=False)
    path = "functionResponse.parts"  # how models from Gemini 3 on take files with an answer
    files = tuple(
        _decode_media(fields(one, path), path)
        for one in items(answer.get("parts"), path)
        if "inlineData" in fields(one, path) or "fileData" in fields(one, path)
    )
    return ToolResultPart(identity, (TextPart(plain), *files), is_error=failed)


_MADE = "hfcall_"
"""How ids begin that Gemini did not give."""


def _decode_call(part: Json, path: str, seed: str) -> ToolCallPart:
    call = fields(part["functionCall"], f"{path}.functionCall")
    name = text(call.get("name"), f"{path}.functionCall.name")
    arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
    given = call.get("id")
    if not isinstance(given, str) or not given:
        made = f"{seed}\n{name}\n{arguments}".encode("utf-8", "surrogatepass")
        given = _MADE + hashlib.blake2b(made, digest_size=9).hexdigest()
    return ToolCallPart(with_signature(given, part.get("thoughtSignature")), name, arguments)


# --- answers --------------------------------------------------------------------------------

_FINISH: dict[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "MODEL_ARMOR": "content_filter",
}


def encode_finish(finish: FinishReason) -> str:
    return {"length": "MAX_TOKENS", "content_filter": "SAFETY", "refusal": "SAFETY"}.get(
        finish, "STOP"
    )


def decode_usage(value: object) -> Usage | None:
    """Thinking is outside the candidates' tokens, what tools brought in outside the prompt's."""
    if not isinstance(value, dict):
        return None
    usage = cast(Json, value)
    if "promptTokenCount" not in usage and "totalTokenCount" not in usage:
        return None
    given = count(usage.get("promptTokenCount")) + count(usage.get("toolUsePromptTokenCount"))
    thought = count(usage.get("thoughtsTokenCount"))
    made = count(usage.get("candidatesTokenCount"))
    apart = max(count(usage.get("totalTokenCount")) - given - made - thought, 0)
    return Usage(
        input=given,
        output=made + thought + apart,
        cached=min(count(usage.get("cachedContentTokenCount")), given),
        reasoning=thought,
    )


def encode_usage(usage: Usage) -> Json:
    body: Json = {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": max(usage.output - usage.reasoning, 0),
        "totalTokenCount": usage.total,
    }
    if usage.cached:
        body["cachedContentTokenCount"] = usage.cached
    if usage.reasoning:
        body["thoughtsTokenCount"] = usage.reasoning
    return body


def searches(candidate: Json) -> int:
    """How many web searches the provider made for this answer."""
    grounding = candidate.get("groundingMetadata")
    queries = cast(Json, grounding).get("webSearchQueries") if isinstance(grounding, dict) else None
    return len(cast("list[Any]", queries)) if isinstance(queries, list) else 0


def encode_reply_part(part: ReplyPart) -> list[Json]:
    match part:
        case TextPart() | RefusalPart():
            return [{"text": part.text}] if part.text else []
        case ToolCallPart():
            return [encode_call(part)]
        case ReasoningPart():
            signature = part.signature if part.origin == "gemini" else None
            signed: Json = {"thoughtSignature": signature} if signature else {}
            if part.text:
                return [{"text": part.text, "thought": True, **signed}]
            return [{"text": "", **signed}] if signed else []


def decode_reply(body: Json) -> Completion:
    """A whole answer: a stream of one chunk."""
    decoder, assembler = GeminiDecoder(), Assembler()
    try:
        for event in (*decoder.feed(body), *decoder.close()):
            assembler.add(event)
    except StreamFailure as failure:
        raise WireError(f"it is an error: {failure.failure.message}") from failure
    return assembler.completion()


def decode_failure(body: Any) -> Failure | None:
    """`{"error": {"code", "message", "status"}}`; a stream without SSE has it in a list."""
    if isinstance(body, list) and body:
        body = cast("list[Any]", body)[0]
    error = cast(Json, body).get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return None
    inner = cast(Json, error)
    status = inner.get("status")
    return Failure(str(inner.get("message") or inner), None if status is None else str(status))


class GeminiDecoder:
    """Reads the chunks of an answer; a whole answer is one chunk."""

    last = False
    """A signature may come after the words, in a chunk of its own: the end of the stream is it."""

    def __init__(self) -> None:
        self._started = False
        self._id = ""
        self._open: tuple[type[ReplyPart], int] | None = None
        self._next = 0
        self._usage: Usage | None = None
        self._searches = 0
        self._finish: FinishReason | None = None
        self._called = False

    def feed(self, data: Json) -> Iterator[Event]:
        if data.get("error"):
            raise _stream_failure(data)
        if not self._started:
            self._started = True
            self._id = str(data.get("responseId") or "")
            yield Start(self._id or None, str(data.get("modelVersion") or ""))
        self._usage = decode_usage(data.get("usageMetadata")) or self._usage
        for raw in items(data.get("candidates"), "candidates"):
            candidate = fields(raw, "candidates[0]")
            if candidate.get("index"):
                continue  # more candidates pass through raw; translated, the first is the answer
            yield from self._candidate(candidate)
        feedback = data.get("promptFeedback")
        if not data.get("candidates") and isinstance(feedback, dict):
            reason = cast(Json, feedback).get("blockReason")
            if reason:
                yield from self._grow(RefusalPart(""), f"the prompt was blocked: {reason}")
                self._finish = "content_filter"

    def _candidate(self, candidate: Json) -> Iterator[Event]:
        content = fields(candidate.get("content") or {}, "candidates[0].content")
        for n, raw in enumerate(items(content.get("parts"), "candidates[0].content.parts")):
            yield from self._part(fields(raw, f"parts[{n}]"), f"parts[{n}]")
        self._searches = max(self._searches, searches(candidate))
        if reason := candidate.get("finishReason"):
            self._finish = _FINISH.get(text(reason, "finishReason"), "stop")

    def _part(self, part: Json, path: str) -> Iterator[Event]:
        signature = part.get("thoughtSignature")
        signed = signature if isinstance(signature, str) and signature else None
        if "functionCall" in part:
            yield from self._close()
            self._called = True
            call = _decode_call(part, path, f"{self._id}-{self._next}")
            yield from self._whole(replace(call, arguments=""), call.arguments)
        elif isinstance(words := part.get("text"), str):
            kind = ReasoningPart if part.get("thought") else TextPart
            if words:
                yield from self._grow(
                    ReasoningPart(origin="gemini") if kind is ReasoningPart else TextPart(""), words
                )
            if signed and kind is ReasoningPart and words:
                yield from self._close(signed)
            elif signed:
                yield from self._close()
                yield from self._whole(ReasoningPart(origin="gemini"), "", signed)

    def _whole(self, part: ReplyPart, words: str, signature: str | None = None) -> Iterator[Event]:
        index, self._next = self._next, self._next + 1
        yield PartStart(index, part)
        if words:
            yield PartDelta(index, words)
        yield PartEnd(index, signature)

    def _grow(self, part: ReplyPart, words: str) -> Iterator[Event]:
        if self._open is None or self._open[0] is not type(part):
            yield from self._close()
            self._open, self._next = (type(part), self._next), self._next + 1
            yield PartStart(self._open[1], part)
        yield PartDelta(self._open[1], words)

    def _close(self, signature: str | None = None) -> Iterator[Event]:
        if self._open is not None:
            yield PartEnd(self._open[1], signature)
            self._open = None

    def close(self) -> Iterator[Event]:
        if self._finish is None:
            raise WireError("the answer ended without a finishReason")
        yield from self._close()
        usage = self._usage
        if usage is not None and self._searches:
            usage = replace(usage, searches=self._searches)
        finish = "tool_calls" if self._called and self._finish == "stop" else self._finish
        yield End(finish, usage)


def _stream_failure(data: Json) -> StreamFailure:
    raw: Any = data["error"]
    code: Any = cast(Json, raw).get("code") if isinstance(raw, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else None
    return StreamFailure(decode_failure(data) or Failure("an error without words"), status)


class GeminiEncoder:
    """Writes an answer as chunks; a call is sent whole, as clients expect it."""

    def __init__(self) -> None:
        self._parts: dict[int, ReplyPart] = {}
        self._held: dict[int, list[str]] = {}
        self._start = Start(None, "")

    def encode(self, event: Event) -> bytes:
        match event:
            case PartDelta(index, words):
                part = self._parts[index]
                if isinstance(part, ToolCallPart):
                    self._held[index].append(words)
                    return b""
                grown = replace(part, text=words)
                if isinstance(grown, ReasoningPart):
                    grown = replace(grown, signature=None)
                return self._chunk(encode_reply_part(grown))
            case PartStart(index, part):
                self._parts[index], self._held[index] = part, []
                shown = not isinstance(part, ToolCallPart) and part.text
                return self._chunk(encode_reply_part(part)) if shown else b""
            case PartEnd():
                return self._end(event)
            case Start():
                self._start = event
                return b""
            case End():
                return self._finish(event)

    def _end(self, end: PartEnd) -> bytes:
        part = self._parts[end.index]
        if isinstance(part, ToolCallPart):
            arguments = part.arguments + "".join(self._held[end.index])
            return self._chunk([encode_call(replace(part, arguments=arguments))])
        if isinstance(part, ReasoningPart) and part.origin == "gemini" and end.signature:
            return self._chunk([{"text": "", "thoughtSignature": end.signature}])
        return b""

    def _chunk(self, parts: list[Json], **more: Any) -> bytes:
        candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0, **more}
        return sse(self._around([candidate])) if parts or more else b""

    def _around(self, candidates: list[Json]) -> Json:
        body: Json = {"candidates": candidates, "modelVersion": self._start.model}
        if self._start.id:
            body["responseId"] = self._start.id
        return body

    def _finish(self, end: End) -> bytes:
        candidate: Json = {
            "content": {"role": "model", "parts": []},
            "finishReason": encode_finish(end.finish),
            "index": 0,
        }
        body = self._around([candidate])
        if usage := end.usage or self._start.usage:
            body["usageMetadata"] = encode_usage(usage)
        return sse(body)
