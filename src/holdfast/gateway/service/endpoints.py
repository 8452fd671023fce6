"""Where clients ask for what: conversations by format, and the endpoints beside them.

An endpoint (vectors, counts of tokens, judgements, pictures, speech) is passed through: its body
goes to a provider that has it and comes back as it is. It is a call like any other, with record,
price, budget and key. What is billed by the picture, the second or the letter is priced so where
the price is known; otherwise its price is unknown, and a budget in dollars refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from email.message import Message as MimeHeaders
from typing import Any, Literal

from holdfast import json_text
from holdfast.errors import BadReply, UsageError
from holdfast.gateway.accounting import Meter
from holdfast.gateway.formats import FORMATS
from holdfast.gateway.formats.base import Format
from holdfast.gateway.formats.json_fields import Json, WireError, count, details, dumps, fields
from holdfast.gateway.input_bounds import input_bound as bound_of
from holdfast.gateway.messages import Origin
from holdfast.gateway.providers import Candidate
from holdfast.gateway.reply import Usage
from holdfast.gateway.service.http_response import BufferSink, Headers, Sink, returned_headers
from holdfast.gateway.upstream import Backends, Outgoing

_KEPT = 16384
"""Bytes of an answer that are kept for the inspector: vectors are not worth their room."""
Unit = Literal["token", "letter", "second", "search"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint of providers that speak one of our formats."""

    name: str
    """As calls are recorded: their `format`."""
    path: str
    """At the provider; `{model}` stands for the model."""
    format: Origin
    free: bool = False
    """Nobody bills for it."""
    unit: Unit = "token"
    """What it is billed by."""
    makes: bool = False
    """It makes something whose tokens the request does not bound: pictures, speech."""
    default_model: str | None = None


_OPENAI = (
    Endpoint("embeddings", "/embeddings", "chat"),
    Endpoint("moderations", "/moderations", "chat", free=True,
             default_model="openai/omni-moderation-latest"),
    Endpoint("images", "/images/generations", "chat", makes=True),
    Endpoint("images", "/images/edits", "chat", makes=True),
    Endpoint("speech", "/audio/speech", "chat", unit="letter"),
    Endpoint("transcriptions", "/audio/transcriptions", "chat", unit="second", makes=True),
    Endpoint("translations", "/audio/translations", "chat", unit="second", makes=True),
)  # fmt: skip
_COUNT = Endpoint("count_tokens", "/messages/count_tokens", "anthropic", free=True)
_COHERE = (
    Endpoint("embeddings", "/v2/embed", "cohere"),
    Endpoint("rerank", "/v2/rerank", "cohere", unit="search"),
)
_GEMINI = {
    "countTokens": Endpoint("count_tokens", "/models/{model}:countTokens", "gemini", free=True),
    "embedContent": Endpoint("embeddings", "/models/{model}:embedContent", "gemini"),
    "batchEmbedContents": Endpoint("embeddings", "/models/{model}:batchEmbedContents", "gemini"),
}
_BEDROCK = Endpoint("count_tokens", "/model/{model}/count-tokens", "bedrock", free=True)


@dataclass(frozen=True, slots=True)
class Asked:
    """What an address asks for: a conversation in a format, or an endpoint."""

    format: Format
    endpoint: Endpoint | None = None
    model: str | None = None
    """Where the address names it; otherwise the body does."""
    streams: bool | None = None
    may_be_array: bool = False
    """Its stream is one JSON array unless the address asks for server-sent events."""
    whose: str | None = None
    """Whose models bare names are, by the address: Vertex's."""


_CONVERSATIONS: dict[str, Origin] = {
    "/chat/completions": "chat",
    "/responses": "responses",
    "/messages": "anthropic",
}
_ENDPOINTS = {one.path: one for one in (*_OPENAI, _COUNT)}
_V1 = re.compile(r"(?:/openai)?/v1(/.*)")
_DEPLOYMENT = re.compile(r"/openai/deployments/(.+?)(/(?:chat|embeddings|images|audio).*)")
_OF_GEMINI = re.compile(
    r"/v1(?:beta|beta1|alpha)?(?:/projects/[^/]+/locations/[^/]+)?(?:/publishers/([^/]+))?"
    r"/(?:models/(.+)|(tunedModels/.+|[^:]+/[^:]+)):([A-Za-z]+)"  # the AI SDK leaves `models/` out
)
_OF_COHERE = {one.path: one for one in _COHERE}
_OF_BEDROCK = re.compile(r"/model/(.+)/(converse|converse-stream|count-tokens)")


def asked_for(path: str) -> Asked | None:
    """What a POST to this address asks for; None if it is no address of ours."""
    if found := _V1.fullmatch(path):
        if (asked := _by_path(found[1])) is not None:
            return asked
    elif found := _DEPLOYMENT.fullmatch(path):  # Azure's older way
        asked = _by_path(found[2])
        return None if asked is None else replace(asked, model=found[1])
    if path == "/v2/chat":
        return Asked(FORMATS["cohere"])
    if (endpoint := _OF_COHERE.get(path)) is not None:
        return Asked(FORMATS["cohere"], endpoint, streams=False)
    if found := _OF_GEMINI.fullmatch(path):
        return _gemini(found)
    if found := _OF_BEDROCK.fullmatch(path):
        format, model = FORMATS["bedrock"], found[1]
        if found[2] == "count-tokens":
            return Asked(format, _BEDROCK, model, False)
        return Asked(format, None, model, found[2] == "converse-stream")
    return None


def _by_path(path: str) -> Asked | None:
    if path in _CONVERSATIONS:
        return Asked(FORMATS[_CONVERSATIONS[path]])
    if (endpoint := _ENDPOINTS.get(path)) is not None:
        return Asked(FORMATS[endpoint.format], endpoint, streams=False)
    return None


def _gemini(found: re.Match[str]) -> Asked | None:
    publisher, named, whole, verb = found.groups()
    if publisher == "anthropic" and verb in ("rawPredict", "streamRawPredict"):
        if named == "count-tokens":
            return Asked(FORMATS["anthropic"], _COUNT, None, False, whose="vertex")
        streams = verb == "streamRawPredict"
        return Asked(FORMATS["anthropic"], None, named, streams, whose="vertex")
    model = whole or (named if publisher is None else f"{publisher}/{named}")
    format = FORMATS["gemini"]
    if verb in ("generateContent", "streamGenerateContent"):
        streams = verb == "streamGenerateContent"
        return Asked(format, None, model, streams, may_be_array=streams)
    endpoint = _GEMINI.get(verb)
    return None if endpoint is None else Asked(format, endpoint, model, False)


class EndpointCall:
    """One client's call of an endpoint, as work for the call loop."""

    streams = error_sent = False

    def __init__(
        self,
        endpoint: Endpoint,
        body: Json,
        raw: bytes,
        sink: Sink,
        backends: Backends,
        *,
        forward: Headers,
        model: str,
        content_type: str,
        input_bound: int | None,
    ) -> None:
        self._endpoint, self._body, self._raw = endpoint, body, raw
        self._sink, self._backends, self._forward = sink, backends, forward
        self._model, self._type, self._declared = model, content_type, input_bound
        self._headers: Headers = {}
        self._said = b""
        self._format: Format = FORMATS[endpoint.format]

    def begin(self, call_id: str) -> None:
        self._headers["x-holdfast-call"] = call_id

    def check(self, candidates: Sequence[Candidate]) -> None:
        """Refuse what none of them has."""
        for candidate in candidates:
            provider = candidate.provider
            if provider.kind != "http" or self._endpoint.format not in provider.formats:
                raise UsageError(
                    f"{provider.name} has no {self._endpoint.name}",
                    hint=f"name a model of a provider that speaks {self._endpoint.format}",
                )

    def size(self, candidate: Candidate) -> tuple[int, int | None]:
        if self._endpoint.free:
            return 0, 0
        return max(bound_of(None, len(self._raw)), self._declared or 0), 0

    def unbounded(self, candidate: Candidate) -> str | None:
        if self._declared is None and (self._endpoint.makes or self._endpoint.unit != "token"):
            return self._endpoint.name
        return None

    async def perform(
        self, candidate: Candidate, cap: int | None, key: str | None, meter: Meter
    ) -> None:
        provider = await self._backends.ready(candidate)
        out = Outgoing(
            provider, candidate.model, self._endpoint.format, self._outward(candidate), False, key,
            self._forward, path=self._path(candidate),
            content_type=self._type,
        )  # fmt: skip
        upstream = self._backends.upstream
        async with upstream.open(out, meter) as exchange:
            # Sound, or text in a format of its own.
            anything = self._endpoint.unit in ("letter", "second")
            await upstream.check(exchange, out, self._format, anything=anything)
            said = await exchange.read()
            headers = returned_headers(exchange.headers)
            kind = exchange.headers.get("content-type", "application/json")
        self._note(provider.name, kind, said, meter)
        meter.emit()
        head = {"content-type": kind, "content-length": str(len(said))}
        await self._sink.start(200, {**head, **headers, **self._headers})
        self._said = said if kind.startswith(("application/json", "text/")) else b""
        await self._sink.write(said, last=True)

    def _path(self, candidate: Candidate) -> str:
        if self._endpoint is _COUNT and candidate.provider.quirks.body_version is not None:
            return "/models/count-tokens:rawPredict"  # Claude on Vertex
        return self._endpoint.path.replace("{model}", candidate.model)

    def _outward(self, candidate: Candidate) -> bytes:
        """The client's own bytes, with the provider's name for the model where they name it."""
        if (version := candidate.provider.quirks.body_version) is not None:
            named = {"anthropic_version": version, "model": candidate.model}
            return dumps({**self._body, **named})
        if self._type != "application/json":
            return with_field(self._raw, self._type, "model", candidate.model)
        if self._body.get("model", candidate.model) == candidate.model:
            return self._raw
        return dumps({**self._body, "model": candidate.model})

    def _note(self, provider: str, kind: str, said: bytes, meter: Meter) -> None:
        """Keep account of what the answer says of itself; raises BadReply if it is none."""
        answer: Json = {}
        if kind.startswith("application/json"):
            try:
                answer = fields(json_text.load(said))
                said_of = answer.get("usage") or answer.get("usageMetadata")
                usage = fields(said_of or details(answer.get("meta")).get("billed_units") or {})
            except (ValueError, RecursionError, WireError) as error:
                raise BadReply(f"{provider}'s reply is not usable: {error}", bought=True) from error
            meter.usage = _usage(usage)
            searches = count(usage.get("search_units"))
            if self._endpoint.unit == "search" and searches:
                meter.usage = Usage(searches=searches)
        if self._endpoint.free:
            meter.usage, meter.free = Usage(), True
        elif self._endpoint.unit == "letter":
            spoken = self._body.get("input")
            meter.usage = Usage(letters=len(spoken) if isinstance(spoken, str) else 0)
        elif self._endpoint.unit == "second" and meter.usage is None:
            seconds = details(answer.get("usage")).get("seconds") or answer.get("duration")
            if isinstance(seconds, int | float) and not isinstance(seconds, bool):
                meter.usage = Usage(seconds=max(float(seconds), 0.0))
        meter.text_bytes = 0 if kind.startswith("audio/") else len(said)
        model = answer.get("model")
        meter.model = model if isinstance(model, str) and model else meter.model
        meter.finish = "stop"

    def reply(self) -> str | None:
        return self._said.decode("utf-8", "replace") if len(self._said) <= _KEPT else None

    def replay(self) -> bytes | None:
        return self._sink.packed() if isinstance(self._sink, BufferSink) else None


def _usage(usage: Json) -> Usage | None:
    """Tokens, in the words of chat, of pictures and sound, and of Gemini."""
    given = next((count(usage[n]) for n in _GIVEN if n in usage), 0)
    made = next((count(usage[n]) for n in _MADE if n in usage), 0)
    return Usage(input=given, output=made) if given or made else None


_GIVEN = ("prompt_tokens", "input_tokens", "promptTokenCount", "totalTokenCount")
_MADE = ("completion_tokens", "output_tokens")


# --- forms ----------------------------------------------------------------------------------


def form_fields(raw: bytes, content_type: str) -> Json:
    """The texts of a form; its files are left where they are."""
    found: dict[str, Any] = {}
    for name, start, end, is_file in _form(raw, content_type):
        if not is_file and end - start <= 65536:
            found[name] = raw[start:end].decode("utf-8", "replace")
    return found


def with_field(raw: bytes, content_type: str, name: str, value: str) -> bytes:
    """The form with one text changed, all else byte for byte."""
    for found, start, end, is_file in _form(raw, content_type):
        if found == name and not is_file:
            return raw[:start] + value.encode() + raw[end:]
    return raw


def _form(raw: bytes, content_type: str) -> list[tuple[str, int, int, bool]]:
    """Name, place and kind of each field of a form; raises UsageError for a broken one."""
    boundary = _parameters(content_type).get("boundary")
    if not boundary or len(boundary) > 200:
        raise UsageError("the form names no boundary")
    mark = b"--" + boundary.encode("latin-1", "replace")
    found: list[tuple[str, int, int, bool]] = []
    at = raw.find(mark)
    while at >= 0:
        at += len(mark)
        if raw[at : at + 2] == b"--":
            return found
        head_end = raw.find(b"\r\n\r\n", at)
        following = raw.find(b"\r\n" + mark, head_end)
        if head_end < 0 or following < 0 or len(found) > 1000:
            break
        head = raw[at:head_end].decode("utf-8", "replace")
        line = re.search(r"(?im)^content-disposition:(.*)$", head)
        named = _parameters(line[1]) if line else {}
        found.append((named.get("name", ""), head_end + 4, following, "filename" in named))
        at = following + 2
    raise UsageError("the form can't be read")


def _parameters(header: str) -> dict[str, str]:
    parsed = MimeHeaders()
    parsed["content-type"] = header.strip()
    given = parsed.get_params(failobj=[])
    return {name.lower(): value for name, value in given}
